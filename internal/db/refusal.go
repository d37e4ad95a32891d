package db

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Refusal is a violation of one of Siding's rules: the request can't be done,
// and the sender has to know why. Routines raise it in SQL:
//
//	RAISE EXCEPTION 'queue % is still listed', name
//	    USING ERRCODE = 'SD409', CONSTRAINT = 'queue_in_use', DETAIL = json::text, HINT = '...';
//
// The last three digits of the SQLSTATE (class SD) are the HTTP status: SD400,
// SD404, SD409, SD413, SD422. Go code makes one by Refuse.
type Refusal struct {
	// Code is the stable name of the rule, snake_case.
	Code string
	// Status is the HTTP status, 400 to 499.
	Status int
	// Message says what was refused, for a person.
	Message string
	// Detail has the facts, perhaps as JSON. May be empty.
	Detail string
	// Hint says what to do about it. May be empty.
	Hint string

	cause error
}

// Error returns the message and the code.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s (%s)", r.Message, r.Code)
}

// RefusalCode returns Code; for those who see it only as an interface.
func (r *Refusal) RefusalCode() string { return r.Code }

// Unwrap returns the error that the refusal was made of, if any.
func (r *Refusal) Unwrap() error { return r.cause }

// Refuse makes a refusal in Go. Like fmt.Errorf it keeps an error given for a
// %w verb.
func Refuse(code string, status int, format string, args ...any) *Refusal {
	err := fmt.Errorf(format, args...)
	return &Refusal{Code: code, Status: status, Message: err.Error(), cause: errors.Unwrap(err)}
}

// AsRefusal finds the refusal in err's chain, also when it still is the
// *pgconn.PgError that SQL raised.
func AsRefusal(err error) (*Refusal, bool) {
	var r *Refusal
	if errors.As(err, &r) {
		return r, true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil, false
	}
	status, ok := refusalStatus(pg.Code)
	if !ok {
		return nil, false
	}
	code := pg.ConstraintName
	if code == "" {
		code = "refused"
	}
	return &Refusal{Code: code, Status: status, Message: pg.Message, Detail: pg.Detail, Hint: pg.Hint, cause: err}, true
}

// Wrap returns err as a *Refusal when SQL raised one, and err itself
// otherwise. The original error stays reachable by errors.As.
func Wrap(err error) error {
	var r *Refusal
	if err == nil || errors.As(err, &r) {
		return err
	}
	if r, ok := AsRefusal(err); ok {
		return r
	}
	return err
}

// refusalStatus returns the HTTP status in an SQLSTATE of class SD.
func refusalStatus(sqlstate string) (int, bool) {
	digits, ok := strings.CutPrefix(sqlstate, "SD")
	if !ok || len(digits) != 3 || digits[0] != '4' {
		return 0, false
	}
	status := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	return status, true
}
