package invariant_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/invariant"
)

// TestBatchTakesOneOfKey: of a key of which two may start, one claim takes one.
func TestBatchTakesOneOfKey(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	var want []int64
	for i := range 5 {
		key := fmt.Sprint("k", i)
		want = append(want, r.placed("one", key))
		if err := r.orders.Release(r.ctx, r.placed("one", key), person, "test"); err != nil {
			t.Fatal(err)
		}
	}
	r.exec(t, r.ctx, `UPDATE siding.resources SET processes = 100`)
	var got []int64
	for _, l := range r.must(r.claim("a1", 10)) {
		got = append(got, l.Order)
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want the first of each key: %v", got, want)
	}
	found, err := invariant.Check(r.ctx, r.db)
	if err != nil || len(found) > 0 {
		t.Errorf("%v %s", err, invariant.Describe(found))
	}
}

// TestLateReportIsStale: a lease that was never acknowledged has gone back; what
// its agent reports afterwards is refused, though the attempt has a record.
func TestLateReportIsStale(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(r *racer) error
	}{
		{"never acknowledged", func(r *racer) error {
			_, err := r.db.Pool.Exec(r.ctx, r.db.SQL(`SELECT siding.return_unacknowledged(100, interval '0')`))
			return err
		}},
		{"closed session", func(r *racer) error { return r.endSession("a1", "closed") }},
		{"lost session", func(r *racer) error { return r.endSession("a1", "lost") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRacer(t)
			id := r.placed("one", "k")
			lease := r.must(r.claim("a1", 1))[0]
			if err := test.end(r); err != nil {
				t.Fatal(err)
			}
			results, err := r.dispatch.ReportNow(r.ctx, r.sessions["a1"], []protocol.Report{{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded}})
			if err != nil {
				t.Fatal(err)
			}
			if results[0].Accepted || results[0].Code != "stale_lease" {
				t.Errorf("the late report: accepted %t, code %q; want false, stale_lease", results[0].Accepted, results[0].Code)
			}
			if state := value[string](t, r.ctx, r.replica, `SELECT state::text FROM siding.orders WHERE id = $1`, id); state != "waiting" {
				t.Errorf("the order is %s, want waiting", state)
			}
		})
	}
}

// TestResolveKeepsDueTime: resolving the attention of an order that isn't due yet
// doesn't make it due.
func TestResolveKeepsDueTime(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	added, err := r.orders.Add(r.ctx, json.RawMessage(`[{"workflow": "one", "key": "k", "due": "1h", "attachments": [{"name": "f", "size": 1}]}]`), person)
	if err != nil {
		t.Fatal(err)
	}
	id := added[0].ID
	if _, err := r.attachments.Put(r.ctx, id, "f", strings.NewReader("too long"), 8); err != nil {
		if _, refused := db.AsRefusal(err); !refused {
			t.Fatal(err)
		}
	}
	if err := r.orders.Resolve(r.ctx, id, "resume", person, "test"); err != nil {
		t.Fatal(err)
	}
	type facts struct{ state, due string }
	got := facts{
		value[string](t, r.ctx, r.replica, `SELECT state::text FROM siding.orders WHERE id = $1`, id),
		value[string](t, r.ctx, r.replica, `SELECT CASE WHEN due_closed AND due_at > siding.clock() + interval '50 minutes' THEN 'in an hour' ELSE 'lost' END
			FROM siding.orders WHERE id = $1`, id),
	}
	if want := (facts{"waiting", "in an hour"}); got != want {
		t.Errorf("after resume: %+v, want %+v", got, want)
	}
}

// TestJobLimitOverSeveralLines: versions of a workflow may have a job in the
// lines of an agent and of its cluster; one claim that serves both keeps the
// job's own limit.
func TestJobLimitOverSeveralLines(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	version := func(agent string) string {
		return fmt.Sprintf("kind: agent\nname: c\ntype: cluster\nmembers: [{agent: a1, priority: 1}]\n---\n"+
			"kind: workflow\nname: w\nordering: independent\ndefaults: {agent: %s}\nsteps: [{job: j, noop: true, processes: 1}]\n", agent)
	}
	var want []int64
	for _, agent := range []string{"a1", "c"} {
		r.apply(t, r.ctx, version(agent))
		for range 2 {
			added, err := r.orders.Add(r.ctx, json.RawMessage(`[{"workflow": "w"}]`), person)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, added[0].ID)
		}
	}
	if _, err := r.dispatch.Intake(r.ctx); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for range want {
		leases := r.must(r.claim("a1", 4))
		if len(leases) != 1 {
			t.Fatalf("%d orders of the job were claimed at once, its limit is 1", len(leases))
		}
		sound(t, r.ctx, r.replica)
		got = append(got, leases[0].Order)
		if err := r.finish("a1", leases...); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}
