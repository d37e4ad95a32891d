package invariant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

// TestIdleTransactionsHoldNobodyUp: two applications have added orders of keys
// K1 and K2 and keep their transactions open. Whatever else is done meanwhile,
// also with the same keys, waits for no lock.
func TestIdleTransactionsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := dbtest.New(t)
	config := d.Config()
	// A statement that waits for a lock fails, and is not tried again.
	config.MaxAttempts = 1
	config.URL += map[bool]string{true: "&", false: "?"}[strings.Contains(config.URL, "?")] + "lock_timeout=200"
	impatient, err := db.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impatient.Close)
	r := newReplica(impatient, anyGap)
	r.apply(t, ctx, loadDefinitions)
	s, err := r.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 4})
	if err != nil {
		t.Fatal(err)
	}
	claim := func() ([]protocol.Lease, error) {
		return r.dispatch.ClaimNow(ctx, protocol.ClaimRequest{Session: s.ID, RequestID: uuid.NewString(), Slots: 1})
	}
	var ids []int64
	add := func(text string) func() error {
		return func() error {
			added, err := r.orders.Add(ctx, []byte(text), person)
			for _, a := range added {
				ids = append(ids, a.ID)
			}
			return err
		}
	}
	if err := add(`[{"workflow": "keyed", "key": "K1"}, {"workflow": "keyed", "key": "K1"}, {"workflow": "free"}, {"workflow": "keyed", "key": "K2", "queue": "Q1"},
		{"workflow": "files", "key": "K2"}]`)(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dispatch.Intake(ctx); err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"K1", "K2"} {
		tx, err := d.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, d.SQL(`SELECT siding.add_orders(jsonb_build_array(
			jsonb_build_object('workflow', 'keyed', 'key', $1::text, 'queue', 'Q1', 'ref', $1),
			jsonb_build_object('workflow', 'files', 'key', $1::text), jsonb_build_object('workflow', 'free')))`), key); err != nil {
			t.Fatal(err)
		}
	}

	steps := []struct {
		name string
		do   func() error
	}{
		{"add to both keys", add(`[{"workflow": "keyed", "key": "K1"}, {"workflow": "keyed", "key": "K2", "queue": "Q1"}, {"workflow": "free"}]`)},
		{"intake", func() error {
			placed, err := r.dispatch.Intake(ctx)
			if err == nil && placed == 0 {
				t.Error("the intake placed nothing")
			}
			return err
		}},
		{"claim and report", func() error {
			for range 3 {
				leases, err := claim()
				if err != nil {
					return err
				}
				if len(leases) != 1 {
					t.Errorf("claimed %d orders, want 1", len(leases))
				}
				for _, l := range leases {
					if _, err := r.dispatch.ReportNow(ctx, s.ID, []protocol.Report{{LeaseRef: l.LeaseRef, Outcome: protocol.Succeeded}}); err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"release", func() error { return r.orders.Release(ctx, ids[5], person, "test") }},
		{"complete", func() error { return r.attachments.Complete(ctx, ids[4], "scan", person) }},
		{"assign", func() error { return r.orders.Assign(ctx, ids[1], "Q2", person, "test") }},
		{"move", func() error { return r.orders.Move(ctx, ids[1], "first", 0, person, "test") }},
		{"suspend", func() error { return r.orders.Suspend(ctx, ids[1], false, person, "test") }},
		{"resume", func() error { return r.orders.Resume(ctx, ids[1], person, "test") }},
		{"cancel", func() error { return r.orders.Cancel(ctx, ids[1], person, "test") }},
		{"sweep", func() error { return r.keeper.Sweep(ctx) }},
		{"heartbeat", func() error {
			_, err := r.dispatch.Heartbeat(ctx, protocol.HeartbeatRequest{Session: s.ID})
			return err
		}},
		{"pause", func() error { return r.orders.Pause(ctx, "workflow", "keyed", time.Time{}, person, "test") }},
		{"unpause", func() error { return r.orders.Unpause(ctx, "workflow", "keyed", person, "test") }},
		{"apply", func() error {
			r.apply(t, ctx, strings.ReplaceAll(loadDefinitions, "penalty: 2", "penalty: 3"))
			return nil
		}},
		{"end session", func() error { return r.dispatch.CloseSession(ctx, s.ID) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	sound(t, ctx, r)
}
