package invariant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/invariant"
	"github.com/siding-dev/siding/internal/invariant/soak"
)

const raceDefinitions = `
kind: queue
name: Q
capacity: 2
penalty: 2
---
kind: agent
name: a1
type: standalone
processes: 4
queues: [Q]
---
kind: agent
name: a2
type: standalone
processes: 4
---
kind: workflow
name: one
ordering: {key: order}
key_space: shared
defaults: {agent: a1, backoff: {first: 1ms, max: 2ms}}
steps: [{job: j, noop: true}]
---
kind: workflow
name: two
ordering: {key: order}
key_space: shared
defaults: {agent: a2, backoff: {first: 1ms, max: 2ms}}
steps: [{job: j, noop: true}]
`

// racer is a replica whose steps are done by hand.
type racer struct {
	*replica
	t        *testing.T
	ctx      context.Context
	sessions map[string]protocol.SessionID
	referee  *invariant.Referee
}

func newRacer(t *testing.T) *racer {
	t.Helper()
	r := &racer{replica: newReplica(dbtest.New(t), anyGap), t: t, ctx: t.Context(), sessions: map[string]protocol.SessionID{},
		referee: invariant.NewReferee(map[string]int{"a1": 4, "a2": 4})}
	r.apply(t, r.ctx, raceDefinitions)
	for _, agent := range []string{"a1", "a2"} {
		r.open(agent)
	}
	return r
}

func (r *racer) open(agent string) {
	r.t.Helper()
	s, err := r.dispatch.OpenSession(r.ctx, protocol.OpenRequest{Agent: agent, Processes: 4})
	if err != nil {
		r.t.Fatal(err)
	}
	r.sessions[agent] = s.ID
}

func (r *racer) add(workflow, key string) (int64, error) {
	text, err := json.Marshal([]map[string]string{{"workflow": workflow, "key": key}})
	if err != nil {
		return 0, err
	}
	added, err := r.orders.Add(r.ctx, text, person)
	if err != nil {
		return 0, err
	}
	return added[0].ID, nil
}

// placed adds an order and gives it its place.
func (r *racer) placed(workflow, key string) int64 {
	r.t.Helper()
	id, err := r.add(workflow, key)
	if err == nil {
		_, err = r.dispatch.Intake(r.ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *racer) claim(agent string, n int) ([]protocol.Lease, error) {
	leases, err := r.dispatch.ClaimNow(r.ctx, protocol.ClaimRequest{Session: r.sessions[agent], RequestID: uuid.NewString(), Slots: n})
	r.referee.Started(agent, leases)
	return leases, err
}

func (r *racer) finish(agent string, leases ...protocol.Lease) error {
	var reports []protocol.Report
	for _, l := range leases {
		r.referee.Ending(l.LeaseRef)
		reports = append(reports, protocol.Report{LeaseRef: l.LeaseRef, Outcome: protocol.Succeeded})
	}
	results, err := r.dispatch.ReportNow(r.ctx, r.sessions[agent], reports)
	for _, result := range results {
		if err == nil && !result.Accepted {
			err = fmt.Errorf("report of order %d: %s", result.Order, result.Code)
		}
	}
	return err
}

// atOnce does all at the same time.
func (r *racer) atOnce(what ...func() error) {
	r.t.Helper()
	start := make(chan struct{})
	var group errgroup.Group
	for _, f := range what {
		group.Go(func() error { <-start; return f() })
	}
	close(start)
	if err := group.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

// must is what a claim got, at least that many.
func (r *racer) must(leases []protocol.Lease, err error) []protocol.Lease {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return leases
}

// TestSuccessorIsNotForgotten: a predecessor ends while its successor is being
// added; after the intake has looked once more, the successor can start, and no
// sweeper had to find it.
func TestSuccessorIsNotForgotten(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	for i := range soak.Times(30) {
		key := fmt.Sprint("k", i)
		r.placed("one", key)
		first := r.must(r.claim("a1", 1))
		if len(first) != 1 {
			t.Fatalf("round %d: the first order isn't claimed", i)
		}
		r.atOnce(
			func() error { return r.finish("a1", first...) },
			func() error {
				if _, err := r.add("one", key); err != nil {
					return err
				}
				_, err := r.dispatch.Intake(r.ctx)
				return err
			},
			func() error { _, err := r.dispatch.Intake(r.ctx); return err },
		)
		if _, err := r.dispatch.Intake(r.ctx); err != nil {
			t.Fatal(err)
		}
		second := r.must(r.claim("a1", 1))
		if len(second) != 1 {
			sound(t, r.ctx, r.replica)
			t.Fatalf("round %d: the successor can't start", i)
		}
		if err := r.finish("a1", second...); err != nil {
			t.Fatal(err)
		}
	}
	sound(t, r.ctx, r.replica)
}

// TestContestedKeyStartsOnce: the head of a key and a released order wait in
// the lines of two agents, and both ask at once: one starts, the other one
// afterwards.
func TestContestedKeyStartsOnce(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	for i := range soak.Times(30) {
		key := fmt.Sprint("k", i)
		r.placed("one", key)
		released := r.placed("two", key)
		if err := r.orders.Release(r.ctx, released, person, "test"); err != nil {
			t.Fatal(err)
		}
		var one, two []protocol.Lease
		r.atOnce(
			func() (err error) { one, err = r.claim("a1", 2); return err },
			func() (err error) { two, err = r.claim("a2", 2); return err },
		)
		// Both may have stood back. Then the next to ask gets it.
		if len(one)+len(two) == 0 {
			one = r.must(r.claim("a1", 2))
		}
		if len(one)+len(two) != 1 {
			t.Fatalf("round %d: %d and %d orders of the key were started", i, len(one), len(two))
		}
		sound(t, r.ctx, r.replica)
		agents := []string{"a1", "a2"}
		if len(two) > 0 {
			slices.Reverse(agents)
		}
		if err := r.finish(agents[0], append(one, two...)...); err != nil {
			t.Fatal(err)
		}
		rest := r.must(r.claim(agents[1], 2))
		if len(rest) != 1 {
			t.Fatalf("round %d: the other order can't start", i)
		}
		if err := r.finish(agents[1], rest...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseWhileHeadIsClaimed: a person releases an order at the moment at
// which the head of its key starts. Its gate must be closed then, since an
// order of the key is active.
func TestReleaseWhileHeadIsClaimed(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	for i := range soak.Times(30) {
		key := fmt.Sprint("k", i)
		r.placed("one", key)
		released := r.placed("two", key)
		var one, two []protocol.Lease
		r.atOnce(
			func() (err error) { one, err = r.claim("a1", 1); return err },
			func() error { return r.orders.Release(r.ctx, released, person, "test") },
			func() (err error) { two, err = r.claim("a2", 1); return err },
		)
		sound(t, r.ctx, r.replica)
		for round := 0; len(one)+len(two) < 2; round++ {
			if round > 3 {
				t.Fatalf("round %d: only %d orders of the key could start", i, len(one)+len(two))
			}
			if err := r.finish("a1", one...); err != nil {
				t.Fatal(err)
			}
			if err := r.finish("a2", two...); err != nil {
				t.Fatal(err)
			}
			if len(one) == 0 {
				one = r.must(r.claim("a1", 1))
				if err := r.finish("a1", one...); err != nil {
					t.Fatal(err)
				}
			}
			if len(two) == 0 {
				two = r.must(r.claim("a2", 1))
			}
		}
		if err := r.finish("a1", one...); err != nil {
			t.Fatal(err)
		}
		if err := r.finish("a2", two...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReportWhileSessionIsLost: a report and the end of its session come at the
// same time. Either the report is accepted and the order has ended, or it is
// refused and the order waits for its next attempt.
func TestReportWhileSessionIsLost(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	accepted := 0
	for i := range soak.Times(30) {
		key := fmt.Sprint("k", i)
		id := r.placed("one", key)
		successor := r.placed("two", key)
		leases := r.must(r.claim("a1", 1))
		if len(leases) != 1 {
			t.Fatalf("round %d: nothing is claimed", i)
		}
		var results []protocol.ReportResult
		r.atOnce(
			func() (err error) {
				results, err = r.dispatch.ReportNow(r.ctx, r.sessions["a1"], []protocol.Report{{LeaseRef: leases[0].LeaseRef, Outcome: protocol.Succeeded}})
				return err
			},
			func() error { return r.endSession("a1", "lost") },
		)
		sound(t, r.ctx, r.replica)
		finished := value[bool](t, r.ctx, r.replica, `SELECT EXISTS (SELECT FROM siding.outcomes WHERE order_id = $1)`, id)
		lost := value[bool](t, r.ctx, r.replica, `SELECT EXISTS (SELECT FROM siding.runs WHERE order_id = $1 AND outcome = 'lost')`, id)
		if results[0].Accepted != finished || finished == lost {
			t.Fatalf("round %d: report accepted %t, order finished %t, lost %t", i, results[0].Accepted, finished, lost)
		}
		if finished {
			accepted++
		}
		held := value[bool](t, r.ctx, r.replica, `SELECT key_closed FROM siding.orders WHERE id = $1`, successor)
		if held == finished {
			t.Fatalf("round %d: order finished %t, successor held %t", i, finished, held)
		}
		r.exec(t, r.ctx, `DELETE FROM siding.orders WHERE key = $1`, key)
		r.exec(t, r.ctx, `TRUNCATE siding.inputs`)
		r.open("a1")
	}
	t.Logf("%d reports were first", accepted)
}

func (r *racer) endSession(agent, reason string) error {
	return r.db.Tx(r.ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(r.ctx, r.db.SQL(`SELECT siding.end_session($1, $2)`), int64(r.sessions[agent]), reason)
		return err
	})
}
