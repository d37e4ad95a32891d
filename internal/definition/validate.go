package definition

import (
	"fmt"
	"slices"
	"strings"
)

// validation checks the rules of one definition.
type validation struct {
	*report
}

// name checks the name of a definition, a job or an attachment.
func (v *validation) name(path, name string) {
	switch err := CheckName(name); {
	case name == "":
		v.add(path, "missing", "")
	case err != nil:
		v.add(path, err.Error(), nameRule)
	}
}

// names checks a list of names in which none may occur twice.
func (v *validation) names(path string, names []string) {
	for i, name := range names {
		v.name(element(path, i), name)
		if name != "" && slices.Index(names, name) < i {
			v.add(element(path, i), name+" is listed twice", "")
		}
	}
}

// atLeast checks a number's lower bound, and the upper one that all have.
func (v *validation) atLeast(path string, value, least int, hint string) {
	switch {
	case value < least:
		v.add(path, fmt.Sprintf("must be at least %d, is %d", least, value), hint)
	case value > maxInt:
		v.add(path, "the number is too large", fmt.Sprintf("at most %d", maxInt))
	}
}

// oneOf checks a word of a closed list; empty is allowed.
func oneOf[T ~string](v *validation, path string, value T, known ...string) {
	if value != "" && !slices.Contains(known, string(value)) {
		v.add(path, "unknown value "+quote(string(value)), suggest(string(value), known))
	}
}

// storableText reports whether Postgres can store a text. Texts that were parsed
// are known to be good; those of documents built by programs aren't.
func storableText(text string) bool {
	return !strings.ContainsRune(text, 0) && strings.ToValidUTF8(text, "") == text
}
