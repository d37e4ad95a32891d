package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Agent is the controller as an agent sees it, over HTTP. It implements the
// same interface as the controller itself; calls go to each URL once, since an
// agent repeats them.
type Agent struct{ client *Client }

var _ protocol.Controller = (*Agent)(nil)

// NewAgent is New for an agent. The token needs the role agent.
func NewAgent(config Config) (*Agent, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	c.rounds = 1
	return &Agent{c}, nil
}

// outcome tells the errors of the protocol from others, which are temporary.
func outcome(err error) error {
	var problem *Problem
	if !errors.As(err, &problem) {
		return err
	}
	switch {
	case problem.Code == "session_gone":
		return fmt.Errorf("%w: %w", protocol.ErrSessionGone, err)
	case problem.Code == "http", // a proxy's answer says nothing for good
		problem.Status >= 500, problem.Status == http.StatusRequestTimeout, problem.Status == http.StatusTooManyRequests:
		return err
	}
	return fmt.Errorf("%w: %w", protocol.ErrRefused, err)
}

func (a *Agent) post(ctx context.Context, repeat bool, wait time.Duration, body, into any, segments ...string) error {
	what, err := send(http.MethodPost, body, append([]string{"agent", "sessions"}, segments...)...)
	if err != nil {
		return err
	}
	what.repeat, what.wait = repeat, wait
	return outcome(a.client.json(ctx, what, into))
}

func number[T ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// OpenSession implements protocol.Controller.
func (a *Agent) OpenSession(ctx context.Context, req protocol.OpenRequest) (protocol.Session, error) {
	var session protocol.Session
	return session, a.post(ctx, false, 0, req, &session)
}

// Claim implements protocol.Controller.
func (a *Agent) Claim(ctx context.Context, req protocol.ClaimRequest) ([]protocol.Lease, error) {
	var body struct{ Leases []protocol.Lease }
	err := a.post(ctx, true, time.Duration(req.WaitMillis)*time.Millisecond, req, &body, number(req.Session), "claim")
	return body.Leases, err
}

// Heartbeat implements protocol.Controller.
func (a *Agent) Heartbeat(ctx context.Context, req protocol.HeartbeatRequest) (protocol.HeartbeatReply, error) {
	var reply protocol.HeartbeatReply
	return reply, a.post(ctx, true, 0, req, &reply, number(req.Session), "heartbeat")
}

// Report implements protocol.Controller.
func (a *Agent) Report(ctx context.Context, session protocol.SessionID, reports []protocol.Report) ([]protocol.ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	var body struct{ Results []protocol.ReportResult }
	err := a.post(ctx, true, 0, map[string]any{"reports": reports}, &body, number(session), "reports")
	return body.Results, err
}

// Output implements protocol.Controller.
func (a *Agent) Output(ctx context.Context, session protocol.SessionID, chunks []protocol.OutputChunk) error {
	if len(chunks) == 0 {
		return nil
	}
	return a.post(ctx, true, 0, map[string]any{"chunks": chunks}, nil, number(session), "output")
}

// Attachment implements protocol.Controller. A connection that breaks shows as
// an error of a read; the caller goes on from the offset that it has reached.
func (a *Agent) Attachment(ctx context.Context, session protocol.SessionID, lease protocol.LeaseRef, name string, offset int64) (io.ReadCloser, error) {
	what := get(url.Values{"offset": {number(offset)}},
		"agent", "sessions", number(session), "orders", number(lease.Order), "leases", number(lease.Lease), "attachments", name)
	answer, err := a.client.do(ctx, what)
	if err != nil {
		return nil, outcome(err)
	}
	return answer.Body, nil
}

// CloseSession implements protocol.Controller.
func (a *Agent) CloseSession(ctx context.Context, session protocol.SessionID) error {
	what := call{method: http.MethodDelete, path: join("agent", "sessions", number(session)), repeat: true}
	return outcome(a.client.json(ctx, what, nil))
}
