package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Problem is what the controller said about a request that it didn't fulfil: a
// problem document of RFC 9457.
type Problem struct {
	// Code is the stable name of the problem (docs/api.md, Codes). It is "http"
	// if the answer came from something else, for example a proxy.
	Code   string `json:"code"`
	Status int    `json:"status"`
	Type   string `json:"type,omitempty"`
	Title  string `json:"title,omitempty"`
	// Detail says what happened, Hint what to do about it.
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Facts are for programs; what they hold depends on the code.
	Facts     json.RawMessage `json:"facts,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	Errors    []ProblemItem   `json:"errors,omitempty"`
}

// ProblemItem is one thing that is wrong with a request.
type ProblemItem struct {
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
	// Line and Column count from 1, for definitions.
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Code   string `json:"code,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// Error returns the detail, the hint and the code.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if p.Hint != "" && !strings.Contains(text, p.Hint) {
		text = strings.TrimRight(text, ".") + ". " + strings.TrimRight(p.Hint, ".")
	}
	return fmt.Sprintf("%s (%s)", text, p.Code)
}

// RefusalCode is the code.
func (p *Problem) RefusalCode() string { return p.Code }

// maxProblem bounds what is read of an answer that is no success.
const maxProblem = 1 << 20

// problemIn reads the problem in an answer.
func problemIn(answer *http.Response) *Problem {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	p := &Problem{}
	if err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(text, p) == nil && p.Code != "" {
		p.Status = answer.StatusCode
		return p
	}
	detail := strings.TrimSpace(string(text[:min(len(text), 200)]))
	return &Problem{Code: "http", Status: answer.StatusCode, Title: answer.Status, Detail: strings.TrimSpace(answer.Status + " " + detail)}
}
