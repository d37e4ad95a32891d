package definition

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Codes of problems. They are the API's codes too.
const (
	CodeInvalid       = "invalid_definition"
	CodeWeightExceeds = "weight_exceeds_capacity"
	CodeUnknownQueue  = "unknown_queue"
	CodeUnknownLock   = "unknown_lock"
	CodeUnknownAgent  = "unknown_agent"
	CodeLockCycle     = "lock_cycle"
	CodeKeyRequired   = "key_required"
	CodeInvalidKey    = "invalid_key"
	maxProblems       = 100
)

// Problem is one thing that is wrong with a definition.
type Problem struct {
	File string `json:"file,omitempty"`
	// Line and Column count from 1, columns in characters; 0 if the definition
	// wasn't read from text.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path leads to the part in question, list entries counted from 0:
	// "steps[1].lock.L1". Names that hold a dot are quoted: lock["a.b"].
	Path    string `json:"path,omitempty"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Hint says what to do about it, where that is known.
	Hint string `json:"hint,omitempty"`
}

// String prints "file:line:column: path: message (hint)", without the parts
// that are unknown.
func (p Problem) String() string {
	var out strings.Builder
	if p.File != "" {
		out.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&out, "%d:%d:", p.Line, p.Column)
	}
	if out.Len() > 0 {
		out.WriteString(" ")
	}
	if p.Path != "" {
		out.WriteString(p.Path + ": ")
	}
	out.WriteString(p.Message)
	if p.Hint != "" {
		out.WriteString(" (" + p.Hint + ")")
	}
	return out.String()
}

// Errors holds all problems of a text, in the order of their positions. It has
// at least one.
type Errors struct {
	Problems []Problem
}

// Error prints one problem per line.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Code is the code all problems share, else CodeInvalid.
func (e *Errors) Code() string {
	for _, p := range e.Problems {
		if p.Code != e.Problems[0].Code {
			return CodeInvalid
		}
	}
	if len(e.Problems) == 0 {
		return CodeInvalid
	}
	return e.Problems[0].Code
}

// RefusalCode is Code, as a refusal of the database's room has it too.
func (e *Errors) RefusalCode() string { return e.Code() }

// asError sorts the problems and cuts them to a number that can still be read;
// nil if there are none.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems], Problem{
			File: problems[0].File, Code: CodeInvalid,
			Message: fmt.Sprintf("%d more problems are not shown", more),
		})
	}
	return &Errors{Problems: problems}
}

// position is a place in a text, both counted from 1; 0 means unknown.
type position struct{ line, column int }

// report collects the problems of one document.
type report struct {
	file      string
	positions map[string]position
	problems  []Problem
	seen      map[string]bool
}

func newReport(file string) *report {
	return &report{file: file, positions: map[string]position{}, seen: map[string]bool{}}
}

// at adds a problem found while reading, at a known position.
func (r *report) at(pos position, path, message, hint string) {
	r.seen[path] = true
	r.record(pos, path, message, hint)
}

// record is at for a problem that leaves the value at the path readable.
func (r *report) record(pos position, path, message, hint string) {
	r.problems = append(r.problems, Problem{
		File: r.file, Line: pos.line, Column: pos.column,
		Path: path, Code: CodeInvalid, Message: message, Hint: hint,
	})
}

// add adds a problem found by a rule. A path that has a problem already is left
// alone: what couldn't be read would otherwise be called missing as well.
func (r *report) add(path, message, hint string) {
	if r.seen[path] {
		return
	}
	r.at(lookUp(r.positions, path), path, message, hint)
}

// lookUp finds the position of a path or of its nearest known parent.
func lookUp(positions map[string]position, path string) position {
	for {
		if pos, ok := positions[path]; ok || path == "" {
			return pos
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// maxShown bounds how much of a user's text a message repeats, in bytes.
const maxShown = 130

// quote prints a user's text in a message.
func quote(text string) string {
	return strconv.Quote(cut(text))
}

func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// member is the path of a field.
func member(path, name string) string {
	name = cut(name)
	plain := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
	switch {
	case !plain:
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// element is the path of a list's entry, counted from 0.
func element(path string, index int) string {
	return path + "[" + strconv.Itoa(index) + "]"
}
