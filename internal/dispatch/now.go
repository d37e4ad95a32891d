package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// ClaimNow is one claim in one transaction of its own: it neither waits for
// orders nor for the claims of others, and needs no Run. For scenarios, tests
// and embedding programs that go step by step.
func (x *Dispatch) ClaimNow(ctx context.Context, req protocol.ClaimRequest) ([]protocol.Lease, error) {
	id, err := uuid.Parse(req.RequestID)
	if err != nil {
		return nil, fmt.Errorf("claim: request id: %w: %w", protocol.ErrRefused, err)
	}
	agent, err := x.agentOf(ctx, req.Session)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	// Not the line that waits for claims: that one belongs to its own goroutine.
	l := newLine(x, agent)
	l.floorAt = time.Now()
	call := &claimCall{session: req.Session, request: id, slots: min(req.Slots, x.config.MaxClaim), once: true}
	answers, _, err := l.claim(ctx, []*claimCall{call})
	if err != nil {
		return nil, err
	}
	return x.answer(ctx, call, claimAnswer{leases: answers[0]})
}

// ReportNow is Report in a transaction of its own; it needs no Run.
func (x *Dispatch) ReportNow(ctx context.Context, session protocol.SessionID, reports []protocol.Report) ([]protocol.ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	call := &reportCall{session: session, reports: reports, done: make(chan error, 1)}
	x.writeCalls(ctx, []*reportCall{call})
	return call.results, <-call.done
}
