package cli

import (
	"errors"
	"fmt"
	"io"
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
