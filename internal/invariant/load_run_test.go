package invariant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/invariant"
	"github.com/siding-dev/siding/internal/invariant/soak"
	"github.com/siding-dev/siding/internal/selector"
)

// TestFourClaimers: four agents at two controllers, three applications that add
// and three people who decide. At every look no rule is broken; in the end every
// order has one outcome and every claim one booking that follows from the last.
func TestFourClaimers(t *testing.T) {
	t.Parallel()
	newLoad(t, false).run(soak.Times(8))
}

// TestFaults: the same, while the database ends connections and statements at
// random moments.
func TestFaults(t *testing.T) {
	t.Parallel()
	l := newLoad(t, true)
	hits := 0
	l.run(soak.Times(7), func(ctx context.Context) error {
		ticker := time.NewTicker(25 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-l.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
			what := []string{"pg_terminate_backend", "pg_cancel_backend"}[rand.IntN(2)]
			var hit int
			err := l.watcher.db.Pool.QueryRow(ctx, `
				SELECT count(`+what+`(pid)) FROM (
					SELECT pid FROM pg_stat_activity
					WHERE datname = current_database() AND application_name <> $1 AND state <> 'idle' AND query LIKE '%siding%'
					ORDER BY random() LIMIT 1) victim`, watcherName).Scan(&hit)
			if err != nil {
				return err
			}
			hits += hit
		}
	})
	t.Logf("%d connections and statements were ended", hits)
	if hits == 0 {
		t.Error("nothing was ended")
	}
}

// TestEveryBookingIsLegal: many orders of all queues are ready, four agents
// claim at once. Whatever the batches were, each booking in turn is the pick
// that the rule makes among those that were left.
func TestEveryBookingIsLegal(t *testing.T) {
	t.Parallel()
	l := newLoad(t, false)
	ctx := t.Context()
	w := l.watcher
	const orders = 150
	call := make([]map[string]any, orders)
	for i := range call {
		call[i] = map[string]any{"workflow": "free"}
		if q := rand.IntN(3); q > 0 {
			call[i]["queue"] = fmt.Sprint("Q", q)
		}
	}
	text, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.orders.Add(ctx, text, person); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dispatch.Intake(ctx); err != nil {
		t.Fatal(err)
	}
	rows, err := w.db.Pool.Query(ctx, w.db.SQL(`SELECT id, position, queue_id, 0 FROM siding.orders`))
	if err != nil {
		t.Fatal(err)
	}
	cands, err := pgx.CollectRows(rows, pgx.RowToStructByPos[selector.Candidate])
	if err != nil {
		t.Fatal(err)
	}

	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			r := l.replicas[i%2]
			s, err := r.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 4})
			if err != nil {
				return err
			}
			for {
				leases, err := r.dispatch.ClaimNow(ctx, protocol.ClaimRequest{Session: s.ID, RequestID: uuid.NewString(), Slots: 1 + rand.IntN(4)})
				if err != nil {
					return err
				}
				l.referee.Started("a1", leases)
				if err := l.finish(ctx, r, s.ID, leases); err != nil {
					return err
				}
				if len(leases) == 0 && value[int](t, ctx, r, `SELECT count(*) FROM siding.orders`) == 0 {
					return nil
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	sound(t, ctx, w)
	if found := l.referee.Found(); len(found) > 0 {
		t.Errorf("broken:\n%s", invariant.Describe(found))
	}

	model := &selector.ModelResource{}
	rows, err = w.db.Pool.Query(ctx, w.db.SQL(`SELECT queue_id, capacity, penalty FROM siding.queues ORDER BY name`))
	if err != nil {
		t.Fatal(err)
	}
	if model.Queues, err = pgx.CollectRows(rows, pgx.RowToStructByPos[selector.ModelQueue]); err != nil {
		t.Fatal(err)
	}
	rows, err = w.db.Pool.Query(ctx, w.db.SQL(`SELECT order_id FROM siding.bookings ORDER BY booking_no`))
	if err != nil {
		t.Fatal(err)
	}
	booked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	if len(booked) != orders {
		t.Errorf("%d orders were booked, want %d", len(booked), orders)
	}
	for i, id := range booked {
		at := slices.IndexFunc(cands, func(c selector.Candidate) bool { return c.ID == id })
		if at < 0 {
			t.Fatalf("booking %d: order %d was booked before", i, id)
		}
		if err := selector.LegalPick(model, cands, cands[at]); err != nil {
			t.Fatalf("booking %d: %v", i, err)
		}
		model.Book(cands[at])
		cands = slices.Delete(cands, at, at+1)
	}
}

// finish reports success of all.
func (l *load) finish(ctx context.Context, r *replica, session protocol.SessionID, leases []protocol.Lease) error {
	reports := make([]protocol.Report, len(leases))
	for i, lease := range leases {
		l.referee.Ending(lease.LeaseRef)
		reports[i] = protocol.Report{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded}
	}
	results, err := r.dispatch.ReportNow(ctx, session, reports)
	for _, result := range results {
		l.referee.Reported(result)
	}
	return err
}
