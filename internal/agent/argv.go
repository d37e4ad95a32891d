package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// placeholder matches {path}, which stands for an argument, and {{path}},
// which stands for the text {path}. Other braces are just braces.
var placeholder = regexp.MustCompile(`\{\{[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\}\}|\{[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\}`)

// expandArgv replaces the placeholders in each element. An element stays one
// argument of the program, whatever a value holds; no shell sees it. A value
// that isn't a string stands as JSON. A missing or null argument is an error.
func expandArgv(argv []string, args json.RawMessage) ([]string, error) {
	expanded := make([]string, len(argv))
	for i, element := range argv {
		var failure error
		expanded[i] = placeholder.ReplaceAllStringFunc(element, func(match string) string {
			if strings.HasPrefix(match, "{{") {
				return match[1 : len(match)-1]
			}
			text, err := argument(args, match[1:len(match)-1])
			if err != nil && failure == nil {
				failure = fmt.Errorf("argv: %w (for a literal %s write {%s})", err, match, match)
			}
			return text
		})
		if failure != nil {
			return nil, failure
		}
		if strings.ContainsRune(expanded[i], 0) {
			return nil, fmt.Errorf("argv: element %d has a NUL byte", i)
		}
	}
	return expanded, nil
}

// argument finds an argument by its path of names.
func argument(args json.RawMessage, path string) (string, error) {
	value := args
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return "", fmt.Errorf("the order has no argument %s", path)
		}
		inner, ok := object[name]
		if !ok {
			return "", fmt.Errorf("the order has no argument %s", path)
		}
		value = inner
	}
	value = bytes.TrimSpace(value)
	if text, ok := scalarText(value); ok {
		return text, nil
	}
	if string(value) == "null" {
		return "", fmt.Errorf("the order's argument %s is null", path)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return "", fmt.Errorf("the order's argument %s: %w", path, err)
	}
	return compact.String(), nil
}

// lookProgram finds a program as a shell would, in the PATH of the job rather
// than the agent's. A name with a slash is relative to the working directory.
func lookProgram(name string, environ []string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("argv: no program")
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	var path string
	for _, variable := range environ {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // the working directory holds data, not programs
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("argv: program %q: %w in PATH", name, fs.ErrNotExist)
}
