package catalog_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// contextOf is for what a test does at its end too.
func contextOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// What is needed isn't removed, and the refusal says by what.
func TestDeleteRefuses(t *testing.T) {
	t.Parallel()
	r := setup(t)
	refuses := func(kind definition.Kind, name, code, says string) {
		t.Helper()
		err := r.catalog.Delete(t.Context(), kind, name, "ann")
		refusal, ok := db.AsRefusal(err)
		if !ok || refusal.Code != code || refusal.Status/100 != 4 || !strings.Contains(refusal.Message, says) {
			t.Errorf("delete %s %s: %v, want %s that says %q", kind, name, err, code, says)
		}
	}
	for _, kind := range definition.Kinds() {
		refuses(kind, "nothing", "unknown_"+string(kind), "nothing")
	}
	refuses(definition.KindQueue, "Q1", "queue_listed", "agent a1, lock L1")
	refuses(definition.KindQueue, "Q2", "queue_listed", "lock L1")
	refuses(definition.KindLock, "L1", "lock_in_use", "workflow locked")
	refuses(definition.KindAgent, "a1", "agent_in_use", "cluster c1")
	refuses(definition.KindAgent, "d1", "agent_in_use", "cluster c1")

	// Live orders come first.
	ids := r.add(`{"workflow":"w","queue":"Q1"}`, `{"workflow":"locked","queue":"Q1"}`)
	refuses(definition.KindQueue, "Q1", "queue_in_use", "2 live orders")
	refuses(definition.KindWorkflow, "w", "workflow_in_use", "1 live orders")
	refuses(definition.KindWorkflow, "locked", "workflow_in_use", "1 live orders")
	refuses(definition.KindAgent, "a1", "agent_in_use", "2 live orders")
	refuses(definition.KindLock, "L1", "lock_in_use", "1 live orders")

	// Also those of an old version.
	r.apply("kind: workflow\nname: locked\nordering: independent\nsteps: [{job: j, noop: true, agent: d1}]")
	refuses(definition.KindLock, "L1", "lock_in_use", "1 live orders")
	refuses(definition.KindWorkflow, "locked", "workflow_in_use", "1 live orders")
	r.cancel(ids...)
	refuses(definition.KindQueue, "Q1", "queue_listed", "lock L1")
	if n := value[int](r, `SELECT count(*) FROM siding.events WHERE kind = 'delete'`); n != 0 {
		t.Errorf("%d removals are recorded", n)
	}

	// From the top down everything goes.
	for _, d := range []struct {
		kind definition.Kind
		name string
	}{
		{definition.KindWorkflow, "locked"}, {definition.KindWorkflow, "w"}, {definition.KindAgent, "c1"}, {definition.KindAgent, "d1"},
		{definition.KindAgent, "a1"}, {definition.KindLock, "L1"}, {definition.KindLock, "L2"}, {definition.KindQueue, "Q1"}, {definition.KindQueue, "Q2"},
	} {
		if code := r.remove(d.kind, d.name); code != "" {
			t.Errorf("delete %s %s: %s", d.kind, d.name, code)
		}
		refuses(d.kind, d.name, "unknown_"+string(d.kind), d.name)
		if entries, err := r.catalog.List(t.Context(), d.kind); err != nil || strings.Contains(names(entries), d.name+" ") {
			t.Errorf("%s is still listed: %v", d.name, err)
		}
	}
	if n := value[int](r, `SELECT count(*) FROM siding.events WHERE kind = 'delete' AND person = 'ann'`); n != 9 {
		t.Errorf("%d removals are recorded, want 9", n)
	}
	if err := r.catalog.Delete(t.Context(), "planet", "x", "ann"); err == nil {
		t.Error("a planet was removed")
	}
	// What is gone is refused to new orders and definitions.
	if got := r.refused("kind: lock\nname: L9\ncapacity: 1\nqueues: [Q1]"); got != "4 queues[0] unknown_queue" {
		t.Errorf("a removed queue: %s", got)
	}
}

// A name that comes back has its old id, so that what names it stays readable,
// and its revisions go on.
func TestRevivedNames(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ids := func() map[string]int {
		found := map[string]int{}
		rows, err := r.db.Pool.Query(t.Context(), r.db.SQL(`
			SELECT name, queue_id FROM siding.queues UNION ALL SELECT name, resource_id FROM siding.resources UNION ALL SELECT name, workflow_id FROM siding.workflows`))
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var name string
			var id int
			if err := rows.Scan(&name, &id); err != nil {
				t.Fatal(err)
			}
			found[name] = id
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return found
	}
	before := ids()
	ended := r.add(`{"workflow":"locked","queue":"Q1"}`)
	r.cancel(ended...)
	for _, d := range []string{"workflow locked", "workflow w", "agent c1", "agent d1", "agent a1", "lock L1", "lock L2", "queue Q1", "queue Q2"} {
		kind, name, _ := strings.Cut(d, " ")
		if code := r.remove(definition.Kind(kind), name); code != "" {
			t.Fatalf("delete %s: %s", d, code)
		}
	}
	if got, want := r.apply(base), each("created 3"); got != want {
		t.Errorf("applied again: %s, want %s", got, want)
	}
	if diff := cmp.Diff(before, ids()); diff != "" {
		t.Errorf("ids: %s", diff)
	}
	x, err := r.orders.Get(t.Context(), ended[0])
	if err != nil || x.Queue != "Q1" || x.Workflow != "locked" {
		t.Errorf("an ended order: %+v, %v", x, err)
	}
	// They work as before.
	live := r.add(`{"workflow":"locked","queue":"Q1"}`)
	if n := value[int](r, `SELECT count(*) FROM siding.grants WHERE order_id = $1`, live[0]); n != 1 {
		t.Errorf("%d grants of the new order", n)
	}
}
