package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// Exit codes of all commands.
const (
	ExitOK     = 0 // done
	ExitNo     = 1 // the answer is no: refused, not found, observed isn't as expected
	ExitFailed = 2 // it couldn't be carried out: wrong use, configuration, no connection, failure
)

// usageError is a mistake in how a command was called or configured.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Usage marks an error as a mistake in how the command was called.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// quietError ends a command that has said everything already.
type quietError struct{ code int }

func (e *quietError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// Quiet is an error that ends a command with an exit code and no message.
func Quiet(code int) error { return &quietError{code} }

// Fail writes what went wrong and returns the exit code. Command is the path of
// the command, for the pointer to its help.
func Fail(w io.Writer, command string, err error) int {
	var quiet *quietError
	if errors.As(err, &quiet) {
		return quiet.code
	}
	if p, ok := problemOf(err); ok {
		p.write(w)
		return p.exit()
	}
	fmt.Fprintf(w, "error: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(w, "See %s --help\n", command)
	}
	return ExitFailed
}

// problem is an error with what to do about it.
type problem struct {
	message string
	hint    string
	code    string
	status  int
	lines   []string // one per part that is wrong
}

func (p problem) write(w io.Writer) {
	fmt.Fprintf(w, "error: %s\n", p.message)
	for _, line := range p.lines {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if p.hint != "" {
		fmt.Fprintf(w, "hint:  %s\n", p.hint)
	}
	if p.code != "" {
		fmt.Fprintf(w, "code:  %s\n", p.code)
	}
}

// exit is no for what was refused, failed for what broke.
func (p problem) exit() int {
	if p.status >= 500 {
		return ExitFailed
	}
	return ExitNo
}

// problemOf finds what is known about an error besides its text: of the
// controller's answer, of a refusal by the database, or of definitions.
func problemOf(err error) (problem, bool) {
	var (
		answer  *client.Problem
		invalid *definition.Errors
	)
	switch {
	case errors.As(err, &answer):
		return answered(answer), true
	case errors.As(err, &invalid):
		p := problem{message: "the definitions are not valid", code: invalid.Code(), status: 422}
		for _, one := range definitionProblems(err) {
			p.lines = append(p.lines, one.String())
		}
		return p, true
	}
	var request *url.Error // of the API, not of a database
	var dial *net.OpError
	if errors.As(err, &request) && errors.As(err, &dial) && dial.Op == "dial" && dial.Addr != nil {
		return problem{
			message: fmt.Sprintf("nobody answers at %s (%v)", dial.Addr, dial.Err), status: 503,
			hint: "Start a controller (`controller dev`), or say where one is by --url or SIDING_URL.",
		}, true
	}
	if r, ok := db.AsRefusal(err); ok {
		return problem{message: r.Message, hint: r.Hint, code: r.Code, status: r.Status}, true
	}
	return problem{}, false
}

// answered is a problem document.
func answered(a *client.Problem) problem {
	p := problem{message: a.Detail, hint: a.Hint, code: a.Code, status: a.Status}
	if p.message == "" {
		p.message = a.Title
	}
	if len(a.Errors) > 1 || (len(a.Errors) == 1 && a.Errors[0].Line > 0) {
		p.message = a.Title
		for _, one := range a.Errors {
			line := one.Message
			if one.Path != "" {
				line = one.Path + ": " + line
			}
			if one.Hint != "" && one.Hint != a.Hint {
				line += " (" + one.Hint + ")"
			}
			p.lines = append(p.lines, line)
		}
	}
	if a.RequestID != "" {
		p.lines = append(p.lines, "request "+a.RequestID+" in the controller's log")
	}
	return p
}

// definitionProblems collects the problems of all files.
func definitionProblems(err error) []definition.Problem {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []definition.Problem
		for _, one := range joined.Unwrap() {
			all = append(all, definitionProblems(one)...)
		}
		return all
	}
	var invalid *definition.Errors
	if errors.As(err, &invalid) {
		return invalid.Problems
	}
	return nil
}
