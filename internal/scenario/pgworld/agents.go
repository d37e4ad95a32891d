package pgworld

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/scenario"
)

// unlimited is how many processes an agent has free that states no limit: as
// many as one claim may ask for.
const unlimited = 1000

// FreeProcesses is the agent's own limit less what runs there.
func (w *World) FreeProcesses(ctx context.Context, agent string) (int, error) {
	id, err := w.resource(ctx, scenario.KindAgent, agent)
	if err != nil {
		return 0, err
	}
	var limit *int
	var running int
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT r.processes, (SELECT count(*) FROM siding.orders o WHERE o.agent_id = r.resource_id AND o.state = 'running')
		FROM siding.resources r WHERE r.resource_id = $1`), id).Scan(&limit, &running)
	if err != nil {
		return 0, fmt.Errorf("free processes of %s: %w", agent, err)
	}
	if limit == nil {
		return unlimited, nil
	}
	if run := w.agents[agent]; run != nil && run.lost {
		return *limit, nil
	}
	return *limit - running, nil
}

// Claim asks for up to that many orders and doesn't wait.
func (w *World) Claim(ctx context.Context, agent string, slots int) ([]scenario.Start, error) {
	if _, err := w.resource(ctx, scenario.KindAgent, agent); err != nil {
		return nil, err
	}
	run, ok := w.agents[agent]
	if !ok {
		return nil, db.Refuse("unknown_agent", 404, "%s is a cluster: its members claim", agent)
	}
	if run.lost {
		if err := w.openSession(ctx, agent); err != nil {
			return nil, err
		}
	}
	leases, err := w.dispatch.ClaimNow(ctx, protocol.ClaimRequest{Session: run.session, RequestID: uuid.NewString(), Slots: slots})
	if err != nil {
		return nil, fmt.Errorf("claim for %s: %w", agent, err)
	}
	starts := make([]scenario.Start, len(leases))
	for i, l := range leases {
		starts[i] = scenario.Start{Order: l.Ref, Queue: l.Queue}
		w.queueAt[l.Lease] = l.Queue
	}
	if len(leases) == 0 {
		return starts, nil
	}
	// The first heartbeat acknowledges the leases.
	return starts, w.heartbeat(ctx, agent)
}

// heartbeat keeps the session of an agent with all it runs.
func (w *World) heartbeat(ctx context.Context, agent string) error {
	run := w.agents[agent]
	rows, err := w.db.Pool.Query(ctx, w.db.SQL(`SELECT id, lease_no FROM siding.orders WHERE session_id = $1 AND state = 'running' ORDER BY lease_no`),
		int64(run.session))
	if err != nil {
		return fmt.Errorf("heartbeat of %s: %w", agent, err)
	}
	leases, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l protocol.LeaseRef, err error) {
		return l, row.Scan(&l.Order, &l.Lease)
	})
	if err != nil {
		return fmt.Errorf("heartbeat of %s: %w", agent, err)
	}
	if _, err := w.dispatch.Heartbeat(ctx, protocol.HeartbeatRequest{Session: run.session, Leases: leases}); err != nil {
		return fmt.Errorf("heartbeat of %s: %w", agent, err)
	}
	return nil
}

// Finish ends the running attempt of the order well.
func (w *World) Finish(ctx context.Context, order string) error {
	zero := 0
	return w.end(ctx, order, protocol.Report{Outcome: protocol.Succeeded, ExitCode: &zero})
}

// Fail ends it with an error.
func (w *World) Fail(ctx context.Context, order string) error {
	one := 1
	return w.end(ctx, order, protocol.Report{Outcome: protocol.Failed, ExitCode: &one, Message: "scenario"})
}

// TimeOut ends it by its job's timeout.
func (w *World) TimeOut(ctx context.Context, order string) error {
	return w.end(ctx, order, protocol.Report{Outcome: protocol.TimedOut, Message: "scenario"})
}

// end reports the end of an order's running attempt.
func (w *World) end(ctx context.Context, order string, report protocol.Report) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	lease, found, err := w.lease(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return db.Refuse("order_not_running", 409, "order %s doesn't run", order)
	}
	report.LeaseRef = lease.LeaseRef
	return w.report(ctx, lease, report)
}

// lease is a running attempt.
type lease struct {
	protocol.LeaseRef
	session  protocol.SessionID
	stopping bool
}

func (w *World) lease(ctx context.Context, order int64) (lease, bool, error) {
	l := lease{LeaseRef: protocol.LeaseRef{Order: order}}
	var session int64
	err := w.db.Pool.QueryRow(ctx, w.db.SQL(`SELECT lease_no, session_id, stop IS NOT NULL FROM siding.orders WHERE id = $1 AND state = 'running'`), order).
		Scan(&l.Lease, &session, &l.stopping)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease{}, false, nil
	}
	if err != nil {
		return lease{}, false, fmt.Errorf("lease of order %d: %w", order, err)
	}
	l.session = protocol.SessionID(session)
	return l, true, nil
}

func (w *World) report(ctx context.Context, l lease, report protocol.Report) error {
	results, err := w.dispatch.ReportNow(ctx, l.session, []protocol.Report{report})
	if err != nil {
		return err
	}
	if !results[0].Accepted {
		return fmt.Errorf("report of order %d: %s", l.Order, results[0].Code)
	}
	return nil
}

// Lose makes the agent silent.
func (w *World) Lose(ctx context.Context, agent string) error {
	if _, err := w.resource(ctx, scenario.KindAgent, agent); err != nil {
		return err
	}
	run, ok := w.agents[agent]
	if !ok {
		return db.Refuse("unknown_agent", 404, "%s is a cluster: only its members can be lost", agent)
	}
	run.lost = true
	return nil
}

// SetLineMode records a person's mode of a line.
func (w *World) SetLineMode(ctx context.Context, agent, mode, reason string) error {
	return w.orders.SetLineMode(ctx, agent, mode, person, reason)
}
