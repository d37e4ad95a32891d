package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// Problem is a problem document of RFC 9457.
type Problem struct {
	Type   string `json:"type" doc:"urn:siding:problem: and the code"`
	Title  string `json:"title" doc:"What the code means"`
	Status int    `json:"status" doc:"The HTTP status"`
	Code   string `json:"code" doc:"Stable name of the problem"`
	Detail string `json:"detail,omitempty" doc:"What happened, for a person"`
	Hint   string `json:"hint,omitempty" doc:"What to do about it"`
	// Facts are those of a refusal, for programs.
	Facts     json.RawMessage `json:"facts,omitempty"`
	RequestID string          `json:"request_id,omitempty" doc:"Stands in the log beside the cause, for internal problems"`
	Errors    []ProblemItem   `json:"errors,omitempty" doc:"The parts of the request that are wrong"`
}

// ProblemItem is one thing that is wrong with a request.
type ProblemItem struct {
	Message string `json:"message"`
	Path    string `json:"path,omitempty" doc:"The part, for example steps[1].lock.L1 or query.limit"`
	// Line and Column count from 1, for definitions.
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Code   string `json:"code,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// problemType is the media type of problem documents.
const problemType = "application/problem+json"

// Error returns the detail and the code.
func (p *Problem) Error() string { return p.Detail + " (" + p.Code + ")" }

// GetStatus returns the HTTP status; for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problem documents; for huma.
func (p *Problem) ContentType(string) string { return problemType }

// newProblem makes a problem with a code of the table.
func newProblem(code, detail string) *Problem {
	k, ok := codes[code]
	if !ok {
		k = kind{http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError)}
	}
	return &Problem{Type: "urn:siding:problem:" + code, Title: k.title, Status: k.status, Code: code, Detail: detail}
}

func writeProblem(w http.ResponseWriter, p *Problem) {
	body, err := json.Marshal(p)
	if err != nil { // the facts are JSON, everything else can't fail
		body = []byte(`{"code":"internal","status":500}`)
	}
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Content-Range", "Content-Disposition"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client is gone if it fails
}

// Huma knows one type of errors per program; this is the one.
func init() { huma.NewError = requestProblem }

// requestProblem is what huma says about a request: its parameters and body
// before a handler sees them.
func requestProblem(status int, message string, errs ...error) huma.StatusError {
	code := map[int]string{
		http.StatusRequestEntityTooLarge: "body_too_large",
		http.StatusUnsupportedMediaType:  "unsupported_media_type",
		http.StatusRequestTimeout:        "request_timeout",
		http.StatusNotAcceptable:         "not_acceptable",
		http.StatusInternalServerError:   "internal",
	}[status]
	switch {
	case message == "cannot read request body":
		return newProblem("body_incomplete", "the body ended before its announced length")
	case code == "" && status >= 400 && status < 500:
		code = "invalid_request"
	case code == "":
		code = "internal"
	}
	p := newProblem(code, message)
	if status != http.StatusInternalServerError {
		p.Status = status
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		item := ProblemItem{Message: err.Error()}
		var detail huma.ErrorDetailer
		if errors.As(err, &detail) {
			d := detail.ErrorDetail()
			item = ProblemItem{Message: d.Message, Path: strings.TrimPrefix(d.Location, "body.")}
		}
		item.Message = shorten(item.Message)
		p.Errors = append(p.Errors, item)
	}
	if len(p.Errors) > 0 && code == "invalid_request" {
		p.Detail = p.Errors[0].Message
		if p.Errors[0].Path != "" {
			p.Detail = p.Errors[0].Path + ": " + p.Detail
		}
	}
	return p
}

// problemOf says what a client is told about an error of a room. What nobody
// foresaw is logged, once, and told without details.
func (s *server) problemOf(ctx context.Context, err error) *Problem {
	var (
		known   *Problem
		invalid *definition.Errors
	)
	if errors.As(err, &known) {
		return known
	}
	if errors.As(err, &invalid) {
		return definitionProblem(invalid)
	}
	if errors.Is(err, protocol.ErrSessionGone) {
		p := newProblem("session_gone", "the session has ended")
		p.Hint = "End its processes and open a new one."
		return p
	}
	if refusal, ok := db.AsRefusal(err); ok {
		return refusalProblem(refusal)
	}
	if errors.Is(err, protocol.ErrRefused) {
		return newProblem("refused", err.Error())
	}
	if p := storedProblem(err); p != nil {
		return p
	}
	return s.failure(ctx, err)
}

// failure is a problem of the service, not of the request.
func (s *server) failure(ctx context.Context, err error) *Problem {
	code := "internal"
	switch {
	case errors.Is(err, db.ErrCommitUnknown):
		code = "outcome_unknown"
	case unreachable(err):
		code = "unavailable"
	}
	p := newProblem(code, codes[code].title)
	p.RequestID = requestIDOf(ctx)
	if ctx.Err() != nil {
		// The client is gone, or the server stops: nobody's fault.
		s.Logger.DebugContext(ctx, "request ended early", "request_id", p.RequestID, "code", code, "error", err)
		if code != "outcome_unknown" {
			return newProblem("unavailable", "the request was ended")
		}
		return p
	}
	s.Logger.ErrorContext(ctx, "request failed", "code", code, "request_id", p.RequestID, "error", err)
	return p
}

func refusalProblem(r *db.Refusal) *Problem {
	p := newProblem(r.Code, r.Message)
	p.Status, p.Hint = r.Status, r.Hint
	if _, ok := codes[r.Code]; !ok {
		p.Title = http.StatusText(r.Status)
	}
	if json.Valid([]byte(r.Detail)) {
		p.Facts = json.RawMessage(r.Detail)
	} else if r.Detail != "" {
		p.Detail += ": " + r.Detail
	}
	return p
}

func definitionProblem(e *definition.Errors) *Problem {
	p := newProblem(e.Code(), e.Error())
	p.Status = http.StatusUnprocessableEntity
	for _, one := range e.Problems {
		p.Errors = append(p.Errors, ProblemItem{
			Message: one.Message, Path: one.Path, Line: one.Line, Column: one.Column, Code: one.Code, Hint: one.Hint,
		})
	}
	if len(e.Problems) == 1 {
		p.Hint = e.Problems[0].Hint
	}
	return p
}

// storedProblem is for text that Postgres can't store: what JSON and Go allow
// and it doesn't.
func storedProblem(err error) *Problem {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	switch pg.Code {
	case "22P05", "22021", "22P02", "22003", "22008", "54001":
		p := newProblem("invalid_request", "the database can't store a part of this: "+pg.Message)
		p.Hint = "Text must be UTF-8 without the character U+0000; numbers and times have bounds."
		return p
	}
	return nil
}

// unreachable says whether err means that the database can't be reached, or not
// just now.
func unreachable(err error) bool {
	var (
		pg      *pgconn.PgError
		connect *pgconn.ConnectError
		network net.Error
	)
	if errors.As(err, &pg) {
		class := pg.Code[:min(2, len(pg.Code))]
		return class == "08" || class == "53" || class == "57" || class == "25"
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgx.ErrTxClosed)
}

// maxShown bounds how much of a user's text a problem repeats, in bytes.
const maxShown = 300

func shorten(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "... (" + strconv.Itoa(len(text)) + " bytes)"
}
