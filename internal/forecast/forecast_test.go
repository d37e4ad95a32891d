package forecast_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/forecast"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const definitions = `
kind: queue
name: Q1
capacity: 1
penalty: 1
---
kind: lock
name: L1
capacity: 2
queues: [Q1]
---
kind: agent
name: a1
type: standalone
processes: 1
queues: [Q1]
---
kind: workflow
name: plain
ordering: independent
defaults: {agent: a1}
steps: [{job: j, noop: true}, {job: k, noop: true}]
---
kind: workflow
name: keyed
ordering: {key: order}
defaults: {agent: a1}
steps: [{job: j, noop: true}]
---
kind: workflow
name: locked
ordering: {key: order}
defaults: {agent: a1}
steps: [{lock: {L1: 2}, steps: [{job: j, noop: true}]}]
`

// setup adds these orders and returns their ids:
//
//	at a1: 0 plain, 1 and 2 of one key, 3 plain in Q1, 4 plain in Q1
//	at L1: 5 and 6 of one key, 7 in Q1, which has the lock
func setup(t *testing.T) (*db.DB, []int64) {
	t.Helper()
	d := dbtest.New(t)
	docs, err := definition.Parse("definitions.yaml", []byte(definitions))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	added, err := order.New(d, db.NoWaker{}).Add(t.Context(), json.RawMessage(`[
		{"workflow": "plain", "ref": "first"}, {"workflow": "keyed", "key": "c"}, {"workflow": "keyed", "key": "c"},
		{"workflow": "plain", "queue": "Q1"}, {"workflow": "plain", "queue": "Q1"},
		{"workflow": "locked", "key": "c"}, {"workflow": "locked", "key": "c"}, {"workflow": "locked", "key": "d", "queue": "Q1"}]`),
		order.Person{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dispatch.New(d, dispatch.Config{}).Intake(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return d, ids
}

func TestOf(t *testing.T) {
	t.Parallel()
	d, ids := setup(t)
	f := forecast.New(d)
	state := func() string {
		var text string
		err := d.Pool.QueryRow(t.Context(), d.SQL(`
			SELECT (SELECT string_agg(o::text, ',' ORDER BY id) FROM siding.orders o) || (SELECT string_agg(g::text, ',') FROM siding.grants g)
			       || (SELECT count(*) FROM siding.bookings) || (SELECT count(*) FROM siding.outcomes) || (SELECT count(*) FROM siding.events)`)).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := state()
	for _, test := range []struct {
		kind, name string
		limit      int
		want       []int // indexes of ids
	}{
		// Q1 has a penalty of one after each; a plain order has two steps; what ends makes way for the next of its key and of
		// its lock.
		{"agent", "a1", 100, []int{3, 0, 3, 0, 4, 1, 4, 2, 7, 5, 6}},
		{"agent", "a1", 2, []int{3, 0}},
		{"agent", "a1", 0, nil},
		// What is held is set aside.
		{"lock", "L1", 100, []int{5, 6}},
	} {
		picks, err := f.Of(t.Context(), test.kind, test.name, test.limit)
		if err != nil {
			t.Fatal(err)
		}
		got, want := []string{}, []string{}
		for _, p := range picks {
			got = append(got, fmt.Sprint(p.Order))
		}
		for _, n := range test.want {
			want = append(want, fmt.Sprint(ids[n]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s, %d picks (-want +got):\n%s", test.kind, test.name, test.limit, diff)
		}
		if test.kind == "agent" && len(picks) > 1 && (picks[0].Queue != "Q1" || picks[1].Queue != "" || picks[1].Ref != "first") {
			t.Errorf("%s %s: queues and references: %+v", test.kind, test.name, picks[:2])
		}
	}
	if after := state(); after != before {
		t.Errorf("a forecast changed something:\n%s\n%s", before, after)
	}
}

func TestOfRefusesUnknownResources(t *testing.T) {
	t.Parallel()
	f := forecast.New(dbtest.New(t))
	for _, kind := range []string{"lock", "agent"} {
		_, err := f.Of(t.Context(), kind, "nothing", 10)
		if r, ok := db.AsRefusal(err); !ok || r.Code != "unknown_"+kind {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}
