package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MaxKeyBytes bounds a key in bytes (docs/concepts.md, "Keys and release").
const MaxKeyBytes = 256

// KeyError says why an order has no valid key.
type KeyError struct {
	// Code is CodeKeyRequired (no key, or a part of it is missing, null, empty or no
	// single value) or CodeInvalidKey (too long, or not text).
	Code string
	// Argument is the path of the argument in question, "" for the whole key.
	Argument string
	Message  string
}

func (e *KeyError) Error() string {
	if e.Argument == "" {
		return e.Message
	}
	return fmt.Sprintf("argument %s: %s", e.Argument, e.Message)
}

// CheckKey checks a key that is given with an order. The error is a *KeyError.
func CheckKey(key string) error {
	switch {
	case key == "":
		return &KeyError{Code: CodeKeyRequired, Message: "the order has no key"}
	case len(key) > MaxKeyBytes:
		return &KeyError{Code: CodeInvalidKey, Message: fmt.Sprintf("the key has more than %d bytes", MaxKeyBytes)}
	case !storableText(key):
		return &KeyError{Code: CodeInvalidKey, Message: "the key is not text in UTF-8, or holds a zero character"}
	}
	return nil
}

// Template makes keys from arguments.
//
// In its text, {a.b} stands for the member b of the member a of the arguments;
// names are made of letters, digits, "_" and "-", and lists have no members.
// Everything else stands for itself; braces can't. At least one argument is
// needed: a constant key would be strict ordering by another name.
//
// The values are put together as they are: strings unchanged, booleans as true
// and false, numbers as Postgres writes them in jsonb ("1e3" is 1000, "1.50"
// stays). So with "{a}/{b}" the parts "x/y" and "z" give the same key as "x" and
// "y/z", as people expect who read the key. Two orders that share a key by such an
// accident only run in sequence; a template whose parts can't hold its separator
// avoids it.
type Template struct {
	parts []templatePart
}

// templatePart is a piece of text, or an argument if path is set.
type templatePart struct {
	text string
	path []string
}

var argumentPath = regexp.MustCompile(`\A[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\z`)

// ParseTemplate reads the text of a template.
func ParseTemplate(text string) (Template, error) {
	if !storableText(text) {
		return Template{}, errors.New("the template is not text in UTF-8, or holds a zero character")
	}
	var t Template
	arguments, fixed := 0, 0
	for rest := text; rest != ""; {
		brace := strings.IndexAny(rest, "{}")
		if brace < 0 {
			brace = len(rest)
		}
		if brace > 0 {
			t.parts = append(t.parts, templatePart{text: rest[:brace]})
			fixed += brace
			rest = rest[brace:]
			continue
		}
		end := strings.IndexAny(rest[1:], "{}") + 1
		if rest[0] == '}' || end == 0 || rest[end] == '{' {
			return Template{}, fmt.Errorf("the braces of %s don't match", quote(text))
		}
		argument := rest[1:end]
		if !argumentPath.MatchString(argument) {
			return Template{}, fmt.Errorf("%s is not the path of an argument", quote(rest[:end+1]))
		}
		t.parts = append(t.parts, templatePart{path: strings.Split(argument, ".")})
		arguments++
		rest = rest[end+1:]
	}
	switch {
	case arguments == 0:
		return Template{}, fmt.Errorf("%s names no argument", quote(text))
	case fixed+arguments > MaxKeyBytes:
		return Template{}, fmt.Errorf("the template gives only keys of more than %d bytes", MaxKeyBytes)
	}
	return t, nil
}

// Key makes the key of an order from its arguments by a template (see
// Template). The error is a *KeyError, or that of ParseTemplate.
func Key(template string, args json.RawMessage) (string, error) {
	t, err := ParseTemplate(template)
	if err != nil {
		return "", fmt.Errorf("key template: %w", err)
	}
	return t.Key(args)
}

// Key makes the key of an order from its arguments, a JSON object. The error
// is a *KeyError.
func (t Template) Key(args json.RawMessage) (string, error) {
	var key strings.Builder
	for _, part := range t.parts {
		if part.path == nil {
			key.WriteString(part.text)
			continue
		}
		value, err := argument(args, part.path)
		if err != nil {
			return "", err
		}
		key.WriteString(value)
	}
	if err := CheckKey(key.String()); err != nil {
		return "", err
	}
	return key.String(), nil
}

// argument reads one scalar out of the arguments as text.
func argument(args json.RawMessage, path []string) (string, error) {
	name := strings.Join(path, ".")
	required := func(message string) (string, error) {
		return "", &KeyError{Code: CodeKeyRequired, Argument: name, Message: message}
	}
	if len(args) > 0 && !json.Valid(args) {
		return "", &KeyError{Code: CodeInvalidKey, Message: "the arguments are not valid JSON"}
	}
	value := args
	for _, step := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return required("missing, and needed for the key")
		}
		value = object[step]
	}
	text := strings.TrimSpace(string(value))
	switch {
	case text == "":
		return required("missing, and needed for the key")
	case text == "null":
		return required("null, and needed for the key")
	case text[0] == '{' || text[0] == '[':
		return required("must be a single value, as it is part of the key")
	case text == "true" || text == "false":
		return text, nil
	case text[0] != '"':
		return numberText(name, text)
	}
	var word string
	if err := json.Unmarshal(value, &word); err != nil {
		return "", &KeyError{Code: CodeInvalidKey, Argument: name, Message: err.Error()}
	}
	if word == "" {
		return required("empty, and needed for the key")
	}
	return word, nil
}

// numberText writes a JSON number as Postgres does in jsonb: no exponent, no
// sign at zero, and as many digits behind the point as were given.
func numberText(name, text string) (string, error) {
	mantissa, exponent := text, 0
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa = text[:at]
		// A number that needs more digits than a key has bytes is refused here,
		// before its zeros are written out.
		n, err := strconv.Atoi(text[at+1:])
		if err != nil || n > MaxKeyBytes || n < -MaxKeyBytes {
			return "", &KeyError{Code: CodeInvalidKey, Argument: name, Message: "the number is too long for a key"}
		}
		exponent = n
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	scale := len(fraction) - exponent // digits behind the point
	if scale < 0 {
		digits += strings.Repeat("0", -scale)
		scale = 0
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, fraction = strings.TrimLeft(digits[:len(digits)-scale], "0"), digits[len(digits)-scale:]
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if negative && strings.Trim(digits, "0") != "" {
		whole = "-" + whole
	}
	return whole, nil
}
