package catalog_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

const all = "queue Q1 %s, queue Q2 %s, lock L1 %s, lock L2 %s, agent a1 %s, agent d1 %s, agent c1 %s, workflow w %s v1, workflow locked %s v1"

func each(action string) string { return strings.ReplaceAll(all, "%s", action) }

func TestApply(t *testing.T) {
	t.Parallel()
	r := empty(t)
	// What refers to others may stand before them.
	docs := strings.Split(base, "---")
	slices.Reverse(docs)
	want := strings.Split(each("created 1"), ", ")
	slices.Reverse(want)
	if diff := cmp.Diff(want, strings.Split(r.apply(strings.Join(docs, "---")), ", ")); diff != "" {
		t.Errorf("applied backwards: %s", diff)
	}
	if got, want := r.apply(base), each("unchanged 1"); got != want {
		t.Errorf("the same again: %s, want %s", got, want)
	}
	for _, tt := range []struct{ text, want string }{
		{"kind: queue\nname: Q1\ncapacity: 5\npenalty: 3", "queue Q1 changed 2"},
		{"kind: queue\nname: Q1\ncapacity: 5\npenalty: 3", "queue Q1 unchanged 2"},
		{"kind: queue\nname: Q1", "queue Q1 changed 3"}, // what is left out gets its default
		{"kind: lock\nname: L1\ncapacity: 3\nqueues: [Q2, Q1]", "lock L1 changed 2"},
		{"kind: lock\nname: L1\ncapacity: 3\nqueues: [Q2]", "lock L1 changed 3"},
		{"kind: lock\nname: L1\ncapacity: 3\nqueues: [Q2]", "lock L1 unchanged 3"},
		{"kind: agent\nname: a1\nprocesses: 4\nmax_blocked: 0\nqueues: [Q1]", "agent a1 changed 2"},
		{"kind: agent\nname: a1\nprocesses: 4\nqueues: [Q1]", "agent a1 changed 3"},
		{"kind: agent\nname: c1\ntype: cluster\nmembers: [{agent: d1, priority: 1}, {agent: a1, priority: 10}]\ndirector: d1", "agent c1 unchanged 1"},
		{"kind: agent\nname: c1\ntype: cluster\nmembers: [{agent: d1, priority: 2}, {agent: a1, priority: 10}]\ndirector: d1", "agent c1 changed 2"},
		{"kind: agent\nname: c1\ntype: cluster\nmembers: [{agent: a1, priority: 10}]", "agent c1 changed 3"},
		{"kind: workflow\nname: w\nordering: strict\nsteps: [{job: j, noop: true, agent: a1}]", "workflow w changed 2 v2"},
		{"kind: workflow\nname: w\nordering: strict\nsteps: [{job: j, noop: true, agent: a1}]", "workflow w unchanged 2 v2"},
		{"kind: workflow\nname: w\nordering: strict\ndefaults: {agent: a1}\nsteps: [{job: k, noop: true}]", "workflow w changed 3 v3"},
	} {
		if got := r.apply(tt.text); got != tt.want {
			t.Errorf("%s:\n%s, want %s", tt.text, got, tt.want)
		}
	}
	// Each change is on record, with who made it.
	if n := value[int](r, `SELECT count(*) FROM siding.events WHERE kind = 'apply' AND person = 'ann'`); n != 9+10 {
		t.Errorf("%d changes are recorded, want 19", n)
	}
}

// What is read back is what was applied, in normal form.
func TestRead(t *testing.T) {
	t.Parallel()
	r := setup(t)
	docs, err := definition.Parse("f.yaml", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, doc := range docs {
		entry, err := r.catalog.Get(t.Context(), doc.Kind, doc.Name())
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		normal, err := doc.Normal()
		if err == nil {
			err = json.Unmarshal(normal, &want)
		}
		if err == nil {
			err = json.Unmarshal(entry.Definition, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: %s", doc.Kind, doc.Name(), diff)
		}
	}
	for _, kind := range definition.Kinds() {
		entries, err := r.catalog.List(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		found += len(entries)
		for _, name := range []string{"nothing", ""} {
			_, err := r.catalog.Get(t.Context(), kind, name)
			if refusal, ok := db.AsRefusal(err); !ok || refusal.Code != "unknown_"+string(kind) {
				t.Errorf("%s %q: %v", kind, name, err)
			}
		}
	}
	if found != len(docs) {
		t.Errorf("%d definitions are listed, want %d", found, len(docs))
	}
	if _, err := r.catalog.List(t.Context(), "planet"); err == nil {
		t.Error("planets are listed")
	}
}

// All or none; each problem with its place.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for name, tt := range map[string]struct{ text, want string }{
		"unknown queue of a lock":     {"kind: lock\nname: L9\ncapacity: 1\nqueues: [Q1, Q9]", "4 queues[1] unknown_queue"},
		"unknown queue of an agent":   {"kind: agent\nname: a9\nprocesses: 1\nqueues:\n- Q9\n- Q1\n- Q8", "5 queues[0] unknown_queue, 7 queues[2] unknown_queue"},
		"unknown member":              {"kind: agent\nname: c9\ntype: cluster\nmembers:\n- {agent: a1, priority: 1}\n- {agent: a9, priority: 1}", "6 members[1].agent unknown_agent"},
		"a cluster as a member":       {"kind: agent\nname: c9\ntype: cluster\nmembers: [{agent: c1, priority: 1}]", "4 members[0].agent invalid_definition"},
		"unknown director":            {"kind: agent\nname: c9\ntype: cluster\ndirector: d9\nmembers: [{agent: a1, priority: 1}]", "4 director unknown_agent"},
		"a director that isn't one":   {"kind: agent\nname: c9\ntype: cluster\ndirector: a1\nmembers: [{agent: a1, priority: 1}]", "4 director invalid_definition"},
		"a member becomes a cluster":  {"kind: agent\nname: a1\ntype: cluster\nmembers: [{agent: d1, priority: 1}]", "3 type invalid_definition"},
		"a director becomes none":     {"kind: agent\nname: d1\ntype: standalone\nprocesses: 1", "3 type invalid_definition"},
		"unknown agent":               {"kind: workflow\nname: x\nordering: independent\nsteps:\n- job: j\n  noop: true\n  agent: a9", "7 steps[0].agent unknown_agent"},
		"unknown default agent":       {"kind: workflow\nname: x\nordering: independent\ndefaults: {agent: a9}\nsteps: [{job: j, noop: true}]", "4 defaults.agent unknown_agent"},
		"unknown lock":                {"kind: workflow\nname: x\nordering: independent\ndefaults: {agent: a1}\nsteps:\n- lock: {L1: 1, L9: 1}\n  steps: [{job: j, noop: true}]", "6 steps[0].lock.L9 unknown_lock"},
		"weight above the capacity":   {"kind: workflow\nname: x\nordering: independent\ndefaults: {agent: a1}\nsteps:\n- lock: {L1: 4}\n  steps: [{job: j, noop: true}]", "6 steps[0].lock.L1 weight_exceeds_capacity"},
		"above that of the same call": {"kind: lock\nname: L1\ncapacity: 2\n---\nkind: workflow\nname: x\nordering: independent\ndefaults: {agent: a1}\nsteps:\n- lock: {L1: 3}\n  steps: [{job: j, noop: true}]", "10 steps[0].lock.L1 weight_exceeds_capacity"},
		"one bad one of two":          {"kind: queue\nname: Q7\n---\nkind: lock\nname: L9\ncapacity: 1\nqueues: [Q9]", "7 queues[0] unknown_queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &room{t: t, db: r.db, catalog: r.catalog, orders: r.orders}
			if got := r.refused(tt.text); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	t.Cleanup(func() {
		var n int
		err := r.db.Pool.QueryRow(contextOf(t), r.db.SQL(`
			SELECT (SELECT count(*) FROM siding.queues) + (SELECT count(*) FROM siding.resources) + (SELECT count(*) FROM siding.workflows)`)).Scan(&n)
		if err != nil || n != 9 {
			t.Errorf("%d definitions are there (%v), want 9", n, err)
		}
	})
}

// An agent can change its type together with the cluster that needed it.
func TestChangeOfTypes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got := r.apply("kind: agent\nname: d1\nprocesses: 1\n---\nkind: agent\nname: c1\ntype: cluster\nmembers: [{agent: a1, priority: 10}, {agent: d1, priority: 1}]")
	if want := "agent d1 changed 2, agent c1 changed 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Twice the same name in one call.
func TestApplyTwice(t *testing.T) {
	t.Parallel()
	r := empty(t)
	// Parse refuses that in one text already.
	one, err := definition.Parse("one.yaml", []byte("kind: queue\nname: Q1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.catalog.Apply(t.Context(), append(one, one...), "ann"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("twice the same: %v", err)
	}
	if n := value[int](r, `SELECT count(*) FROM siding.queues`); n != 0 {
		t.Errorf("%d queues", n)
	}
}

func TestApplyIf(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i, tt := range []struct {
		text     string
		revision int
		want     catalog.Action // "": refused
	}{
		{"kind: queue\nname: Q7", 1, ""},
		{"kind: queue\nname: Q7", 0, catalog.Created},
		{"kind: queue\nname: Q7\ncapacity: 1", 0, ""},
		{"kind: queue\nname: Q7\ncapacity: 1", 1, catalog.Changed},
		{"kind: queue\nname: Q7\ncapacity: 2", 1, ""},
		{"kind: queue\nname: Q7\ncapacity: 1", 2, catalog.Unchanged},
		{"kind: lock\nname: L1\ncapacity: 4", 2, ""},
		{"kind: lock\nname: L1\ncapacity: 4", 1, catalog.Changed},
		{"kind: agent\nname: a1\nprocesses: 5", 1, catalog.Changed},
		{"kind: agent\nname: a1\nprocesses: 6", 1, ""},
		{"kind: workflow\nname: w\nordering: strict\nsteps: [{job: j, noop: true, agent: a1}]", 1, catalog.Changed},
		{"kind: workflow\nname: w\nordering: independent\nsteps: [{job: j, noop: true, agent: a1}]", 1, ""},
	} {
		docs, err := definition.Parse("f.yaml", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		change, err := r.catalog.ApplyIf(t.Context(), docs[0], tt.revision, "ann")
		if tt.want == "" {
			if refusal, ok := db.AsRefusal(err); !ok || refusal.Code != "revision_conflict" {
				t.Errorf("%d: %+v, %v", i, change, err)
			}
			continue
		}
		if err != nil || change.Action != tt.want {
			t.Errorf("%d: %+v, %v; want %s", i, change, err, tt.want)
		}
	}
}

// Keys of workflows with a common key space are in sequence with each other,
// also when a workflow comes to it later.
func TestKeySpaces(t *testing.T) {
	t.Parallel()
	r := empty(t)
	workflow := func(name, space string) string {
		return "kind: workflow\nname: " + name + "\nordering: {key: order}\n" + space + "steps: [{job: j, noop: true, agent: a1}]\n"
	}
	r.apply("kind: agent\nname: a1\nprocesses: 4\n---\n" + workflow("x", "key_space: customers\n") + "---\n" +
		workflow("y", "key_space: customers\n") + "---\n" + workflow("customers", "") + "---\n" + workflow("z", ""))
	ids := r.add(`{"workflow":"x","key":"k"}`, `{"workflow":"y","key":"k"}`, `{"workflow":"customers","key":"k"}`, `{"workflow":"z","key":"k"}`)
	candidates := func() []int64 {
		return value[[]int64](r, `SELECT array_agg(id ORDER BY id) FROM siding.orders WHERE candidate`)
	}
	if diff := cmp.Diff([]int64{ids[0], ids[3]}, candidates()); diff != "" {
		t.Error(diff)
	}
	r.apply(workflow("z", "key_space: customers\n"))
	ids = append(ids, r.add(`{"workflow":"z","key":"k"}`)...)
	r.cancel(ids[0])
	if diff := cmp.Diff([]int64{ids[1], ids[3]}, candidates()); diff != "" {
		t.Error(diff)
	}
	r.cancel(ids[1], ids[2])
	if diff := cmp.Diff(ids[3:], candidates()); diff != "" {
		t.Errorf("a live order keeps the space it was added in: %s", diff)
	}
}

// Live orders keep the version that they were added with; the limits of jobs
// are those of the newest.
func TestVersions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.add(`{"workflow":"w"}`)
	r.apply("kind: workflow\nname: w\nordering: independent\nsteps: [{job: j, noop: true, agent: d1, processes: 2}, {job: k, noop: true, agent: d1}]")
	young := r.add(`{"workflow":"w"}`)
	version := func(id int64) string {
		return value[string](r, `
			SELECT v.version || ' ' || l.name FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
			JOIN siding.workflow_versions v ON v.version_id = s.version_id JOIN siding.resources l ON l.resource_id = o.line_id WHERE o.id = $1`, id)
	}
	if got := version(old[0]) + ", " + version(young[0]); got != "1 a1, 2 d1" {
		t.Errorf("got %s", got)
	}
	limit := func() *int { return value[*int](r, `SELECT processes FROM siding.job_classes WHERE job = 'j'`) }
	if got := limit(); got == nil || *got != 2 {
		t.Errorf("limit %v, want 2", got)
	}
	r.apply("kind: workflow\nname: w\nordering: independent\nsteps: [{job: j, noop: true, agent: d1}]")
	if got := limit(); got != nil {
		t.Errorf("limit %d, want none", *got)
	}
}
