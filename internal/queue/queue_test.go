package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/why/whytest"
)

const definitions = `
{kind: queue, name: Q1, capacity: 2}
---
{kind: queue, name: Q2}
---
{kind: queue, name: alone, capacity: 1}
---
{kind: lock, name: L1, capacity: 1, queues: [Q1]}
---
{kind: agent, name: a1, processes: 9, queues: [Q1, Q2]}
---
{kind: agent, name: a2, processes: 9}
---
{kind: workflow, name: w, ordering: independent, wait_limit: 10m, defaults: {agent: a1, max_attempts: 2}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: once, ordering: independent, defaults: {agent: a1, max_attempts: 1}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: v, ordering: independent, defaults: {agent: a2}, steps: [{job: j, noop: true, processes: 1}]}
---
{kind: workflow, name: l, ordering: independent, defaults: {agent: a2}, steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: k, ordering: {key: order}, defaults: {agent: a1}, steps: [{job: j, noop: true}]}
`

type world struct {
	*whytest.World
	t      *testing.T
	queues *queue.Queues
}

func setup(t *testing.T, opts ...dbtest.Option) *world {
	t.Helper()
	w := whytest.New(t, definitions, opts...)
	w.Open("a1", 9)
	w.Open("a2", 9)
	return &world{World: w, t: t, queues: queue.New(w.DB)}
}

// list reads a whole list in pages of a length.
func (w *world) list(name, list string, limit int) []string {
	w.t.Helper()
	var ids []int64
	cursor := ""
	for {
		page, err := w.queues.List(w.t.Context(), name, list, cursor, limit)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page.Orders {
			ids = append(ids, e.Order)
		}
		if cursor = page.Next; cursor == "" {
			return w.Refs(ids)
		}
		if len(page.Orders) != limit {
			w.t.Fatalf("a page of %d orders, asked for %d, has a next", len(page.Orders), limit)
		}
	}
}

func (w *world) expectLists(name string, want map[string][]string) {
	w.t.Helper()
	for _, limit := range []int{1, 2, 100} {
		got := map[string][]string{}
		for _, list := range queue.Lists() {
			if refs := w.list(name, list, limit); len(refs) > 0 {
				got[list] = refs
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Errorf("lists of %s in pages of %d (-want +got):\n%s", name, limit, diff)
		}
	}
}

func expectRefusal(t *testing.T, err error, code string, status int) {
	t.Helper()
	var r *db.Refusal
	if !errors.As(err, &r) || r.Code != code || r.Status != status {
		t.Errorf("got %v, want refusal %s with status %d", err, code, status)
	}
}

// populate makes an order of every kind in a queue, or in none, of several
// lines.
func (w *world) populate(p, field string) map[string][]string {
	one := func(workflow, ref, more string) string {
		return fmt.Sprintf(`{"workflow": %q, "ref": %q%s%s}`, workflow, p+ref, field, more)
	}
	w.Add(one("once", "dead", ""), one("w", "pending1", ""), one("w", "retry", ""))
	w.Claim("a1", 3)
	w.Report("failed", p+"dead", p+"retry")
	w.Add(
		one("w", "ready", ""), one("v", "other line", ""), one("w", "blocked", `, "attachments": [{"name": "f"}]`), one("w", "late", `, "attachments": [{"name": "f"}]`),
		one("l", "locked", ""), one("w", "due2", `, "due": "20m"`), one("w", "due1", `, "due": "10m"`), one("w", "suspended", ""),
		one("k", "head", `, "key": "`+p+`"`), one("k", "held", `, "key": "`+p+`"`), one("w", "attention", `, "wait_limit": "0s", "attachments": [{"name": "f"}]`),
		one("w", "moved", ""))
	w.Exec(`SELECT siding.mark_attachment_complete($1, 'f', 'ann')`, w.ID(p+"late"))
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Suspend(ctx, w.ID(p+"suspended"), false, whytest.Decider, "")
	})
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Move(ctx, w.ID(p+"moved"), "first", 0, whytest.Decider, "")
	})
	want := map[string][]string{
		queue.Waiting:   {"moved", "ready", "other line", "blocked", "late", "locked", "head", "held"},
		queue.Pending:   {"pending1"},
		queue.Scheduled: {"retry", "due1", "due2"},
		queue.Dead:      {"dead"}, queue.Attention: {"attention"}, queue.Suspended: {"suspended"},
	}
	for _, refs := range want {
		for i := range refs {
			refs[i] = p + refs[i]
		}
	}
	return want
}

func TestLists(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "l", "ref": "holder"}`)
	if got := w.Claim("a2", 1); len(got) != 1 {
		t.Fatalf("claimed %v", got)
	}
	none := w.populate("n-", ``)
	inQ1 := w.populate("q-", `, "queue": "Q1"`) // last: what waits here takes precedence at the claims
	none[queue.Pending] = append([]string{"holder"}, none[queue.Pending]...)
	w.expectLists("Q1", inQ1)
	w.expectLists(queue.None, none)
	w.expectLists("Q2", map[string][]string{})
}

func TestEntry(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "once", "ref": "J1", "queue": "Q1"}`)
	w.Claim("a1", 1)
	page, err := w.queues.List(t.Context(), "Q1", queue.Pending, "", 0)
	if err != nil || len(page.Orders) != 1 {
		t.Fatalf("pending: %v, %v", page, err)
	}
	now := page.Orders[0].AddedAt
	want := queue.Page{Queue: "Q1", List: queue.Pending, Orders: []queue.Entry{{
		Order: w.ID("J1"), Ref: "J1", Workflow: "once", Step: "1", Job: "j", LineKind: "agent", Line: "a1", State: "running",
		Position: w.ID("J1") << 20, Attempt: 1, AddedAt: now, ReadyAt: &now, StartedAt: &now, LeasedAt: &now, Agent: "a1",
	}}}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	w.Report("failed", "J1")
	page, err = w.queues.List(t.Context(), "Q1", queue.Dead, "", 0)
	if err != nil || len(page.Orders) != 1 || page.Orders[0].Reason != "attempts_used_up" || page.Orders[0].State != "dead" {
		t.Errorf("dead: %+v, %v", page, err)
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Many("w", "x", 2)
	page, err := w.queues.List(t.Context(), queue.None, queue.Waiting, "", 1)
	if err != nil || page.Next == "" {
		t.Fatalf("the first page: %v, %v", page, err)
	}
	for name, test := range map[string]struct {
		queue, list, cursor string
		limit               int
		code                string
		status              int
	}{
		"no such queue":            {"nowhere", queue.Waiting, "", 0, "unknown_queue", 404},
		"no such list":             {"Q1", "finished", "", 0, "unknown_list", 404},
		"no cursor":                {"Q1", queue.Waiting, "x!", 0, "invalid_cursor", 422},
		"cursor with other parts":  {"Q1", queue.Waiting, "d2FpdGluZy94L3kveg", 0, "invalid_cursor", 422},
		"cursor of another list":   {queue.None, queue.Dead, page.Next, 0, "invalid_cursor", 422},
		"negative limit":           {"Q1", queue.Waiting, "", -1, "invalid_limit", 422},
		"more than a page may has": {"Q1", queue.Waiting, "", queue.MaxPage + 1, "invalid_limit", 422},
	} {
		_, err := w.queues.List(t.Context(), test.queue, test.list, test.cursor, test.limit)
		t.Run(name, func(t *testing.T) { expectRefusal(t, err, test.code, test.status) })
	}
	_, err = w.queues.InQueue(t.Context(), "nowhere", 0)
	expectRefusal(t, err, "unknown_queue", 404)
}

func (w *world) expectPlaces(name string, in, overflow []string) {
	w.t.Helper()
	places, err := w.queues.InQueue(w.t.Context(), name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	refs := func(places []queue.Place) []string {
		ids := []int64{}
		for _, p := range places {
			ids = append(ids, p.Order)
		}
		return w.Refs(ids)
	}
	if diff := cmp.Diff([][]string{in, overflow}, [][]string{refs(places.InQueue), refs(places.Overflow)}); diff != "" {
		w.t.Errorf("in queue %s, and overflow (-want +got):\n%s", name, diff)
	}
}

func TestInQueue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "l", "ref": "holder"}`, `{"workflow": "w", "ref": "B", "queue": "Q1", "attachments": [{"name": "f"}]}`)
	w.Many("w", "x", 4, `"queue": "Q1"`)
	w.Many("l", "y", 3, `"queue": "Q1"`)
	w.Many("w", "n", 3)
	// Apart at each resource; a blocked order takes no place.
	w.expectPlaces("Q1", []string{"x1", "x2", "y1", "y2"}, []string{"x3", "x4", "y3"})
	w.Exec(`SELECT siding.mark_attachment_complete($1, 'f', 'ann')`, w.ID("B"))
	w.expectPlaces("Q1", []string{"B", "x1", "y1", "y2"}, []string{"x2", "x3", "x4", "y3"})
	w.Apply(`{kind: queue, name: Q1, capacity: 3}`)
	w.expectPlaces("Q1", []string{"B", "x1", "x2", "y1", "y2", "y3"}, []string{"x3", "x4"})
	w.Apply(`{kind: queue, name: Q1}`)
	w.expectPlaces("Q1", []string{"B", "x1", "x2", "x3", "x4", "y1", "y2", "y3"}, []string{})
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Pause(ctx, "queue", "Q1", time.Time{}, whytest.Decider, "repair")
	})
	w.expectPlaces("Q1", []string{}, []string{})

	// No resource lists it, or there is no queue.
	w.Many("w", "z", 2, `"queue": "alone"`)
	w.expectPlaces("alone", []string{}, []string{})
	w.expectPlaces(queue.None, []string{}, []string{})
}

// A job whose own limit is used up has no candidates.
func TestInQueueLeavesOutUsedUpJobs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Apply(`{kind: agent, name: a2, processes: 9, queues: [Q2]}`)
	w.Many("v", "v", 3, `"queue": "Q2"`)
	w.expectPlaces("Q2", []string{"v1", "v2", "v3"}, []string{})
	w.Claim("a2", 1)
	w.expectPlaces("Q2", []string{}, []string{})
}

// A page of any list of a queue with 100,000 orders in each of its parts reads
// a bounded number of pages, in the middle too.
func TestBounded(t *testing.T) {
	t.Parallel()
	const many = 100_000
	for name, test := range map[string]struct{ order, list, state string }{
		"ready":     {`{"workflow": "w", "ref": "J", "queue": "Q1"}`, queue.Waiting, ""},
		"late":      {`{"workflow": "w", "ref": "J", "queue": "Q1"}`, queue.Waiting, "late = true"},
		"blocked":   {`{"workflow": "w", "ref": "J", "queue": "Q1", "attachments": [{"name": "f"}]}`, queue.Waiting, ""},
		"scheduled": {`{"workflow": "w", "ref": "J", "queue": "Q1", "due": "1h"}`, queue.Scheduled, ""},
		"dead":      {`{"workflow": "w", "ref": "J", "queue": "Q1"}`, queue.Dead, "state = 'dead'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.Many("w", "n", 100) // of no queue
			w.Add(test.order)
			if test.state != "" {
				w.Exec(`UPDATE siding.orders SET `+test.state+` WHERE id = $1`, w.ID("J"))
			}
			w.Flood("J", many)
			for _, analyze := range []bool{false, true} {
				if analyze {
					w.Exec(`ANALYZE`)
				}
				for _, after := range []int64{0, many / 2} {
					cost := w.Explain(w.DB.SQL(`
						SELECT p.* FROM siding.orders o, LATERAL siding.list_page(o.queue_id, $1, o.position, o.due_at, o.id, 100) p WHERE o.id = $2`), test.list, w.ID("J")+after)
					if cost.Buffers > 2000 {
						t.Errorf("after %d, analyzed %v: %+v", after, analyze, cost)
					}
				}
			}
			if got := whytest.Value[int](w.World, `SELECT count(*) FROM siding.list_orders(siding.queue_named('Q1'), $1, NULL, NULL, NULL, 1000)`, test.list); got != 1000 {
				t.Errorf("a page of 1,000 has %d orders", got)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.populate("q-", `, "queue": "Q1"`)
	if counts, err := w.queues.Counts(t.Context()); err != nil || len(counts) > 0 {
		t.Errorf("before the first count: %v, %v", counts, err)
	}
	refresh := func(q *queue.Queues, want bool) {
		t.Helper()
		if got, err := q.RefreshCounts(t.Context()); err != nil || got != want {
			t.Errorf("counted: got %v, %v; want %v", got, err, want)
		}
	}
	refresh(w.queues, true)
	refresh(w.queues, false)        // the numbers are young
	refresh(queue.New(w.DB), false) // for everybody
	w.Advance(time.Hour)

	counts, err := w.queues.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Queue, List string
		Orders      int64
	}
	var got []row
	for _, c := range counts {
		if c.AgeMillis != time.Hour.Milliseconds() {
			t.Errorf("%s %s: age %d ms, want an hour", c.Queue, c.List, c.AgeMillis)
		}
		if c.Orders > 0 {
			got = append(got, row{c.Queue, c.List, c.Orders})
		}
	}
	want := []row{
		{"Q1", queue.Waiting, 8}, {"Q1", queue.Pending, 1}, {"Q1", queue.Scheduled, 3},
		{"Q1", queue.Dead, 1}, {"Q1", queue.Attention, 1}, {"Q1", queue.Suspended, 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts above zero (-want +got):\n%s", diff)
	}
	if n := 4 * len(queue.Lists()); len(counts) != n {
		t.Errorf("%d counts, want one per queue and list: %d", len(counts), n)
	}

	// Who finds another replica counting leaves it to that one.
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT siding.refresh_list_counts('2 s')`); err != nil {
		t.Fatal(err)
	}
	refresh(w.queues, false)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	refresh(w.queues, true)
}
