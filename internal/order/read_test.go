package order_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/order"
)

func TestGates(t *testing.T) {
	t.Parallel()
	const intake, due, attachment, key, lock, pause = 1, 2, 4, 8, 16, 32
	for _, tt := range []struct {
		state  string
		closed int
		word   string
		gates  []string
	}{
		{"waiting", 0, "ready", []string{}},
		{"waiting", intake, "arriving", []string{"intake"}},
		{"waiting", pause, "paused", []string{"pause"}},
		{"waiting", lock | pause, "locked_out", []string{"pause", "lock"}},
		{"waiting", key | lock, "held", []string{"lock", "key"}},
		{"waiting", attachment | key | lock, "blocked", []string{"lock", "key", "attachment"}},
		{"waiting", due | attachment | key | lock | pause | intake, "scheduled", []string{"intake", "pause", "lock", "key", "attachment", "due"}},
		{"running", 0, "running", []string{}},
		{"dead", 0, "dead", []string{}},
	} {
		is := func(gate int) bool { return tt.closed&gate != 0 }
		gates, word := order.Gates(tt.state, is(intake), is(due), is(attachment), is(key), is(lock), is(pause))
		if word != tt.word {
			t.Errorf("%s %b: %s, want %s", tt.state, tt.closed, word, tt.word)
		}
		if diff := cmp.Diff(tt.gates, gates); diff != "" {
			t.Errorf("%s %b: %s", tt.state, tt.closed, diff)
		}
	}
}

// room is an order room with a workflow whose orders wait for an attachment.
func room(t *testing.T, opts ...dbtest.Option) (*order.Orders, *db.DB) {
	t.Helper()
	d := dbtest.New(t, opts...)
	docs, err := definition.Parse("", []byte(`
kind: queue
name: Q1
---
kind: agent
name: a1
processes: 1
---
kind: lock
name: L1
capacity: 1
---
kind: workflow
name: w
ordering: independent
wait_limit: 1h
attachments: [{name: f}]
steps: [{lock: {L1: 1}, steps: [{job: go, noop: true, agent: a1}]}]
---
kind: workflow
name: v
ordering: independent
steps: [{job: go, noop: true, agent: a1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	return order.New(d, db.NoWaker{}), d
}

var me = order.Person{Name: "test"}

// However few orders a call looks at, the pages together are the list, whole
// and in order.
func TestListInSmallWindows(t *testing.T) {
	t.Parallel()
	o, _ := room(t)
	ctx := t.Context()
	var add []map[string]any
	for i := range 24 {
		add = append(add, map[string]any{"workflow": "w", "ref": fmt.Sprintf("r%02d", i)})
	}
	text, err := json.Marshal(add)
	if err != nil {
		t.Fatal(err)
	}
	added, err := o.Add(ctx, text, me)
	if err != nil {
		t.Fatal(err)
	}
	var all, live, ended []int64
	for i, a := range added {
		all = append(all, a.ID)
		// Runs of ended and of live ones, longer than a window, so that the two
		// windows end at different places.
		if i/8%2 == 0 || i == 13 {
			if err := o.Cancel(ctx, a.ID, me, ""); err != nil {
				t.Fatal(err)
			}
			ended = append(ended, a.ID)
		} else {
			live = append(live, a.ID)
		}
	}
	for _, list := range [][]int64{all, live, ended} {
		slices.Reverse(list)
	}
	for _, tt := range []struct {
		filter order.Filter
		want   []int64
	}{
		{order.Filter{}, all},
		{order.Filter{State: "live"}, live},
		{order.Filter{State: "cancelled"}, ended},
		{order.Filter{Queue: "Q1"}, nil},
		{order.Filter{State: "ended", RefPrefix: "r"}, reversed(ended)},
		{order.Filter{RefPrefix: "r1"}, reversed(all[4:14])},
	} {
		for _, scan := range []int{2, 7, 8, 30} {
			for _, limit := range []int{3, 50} {
				f := tt.filter.Scanning(scan)
				f.Limit = limit
				if diff := cmp.Diff(tt.want, collect(t, o, f)); diff != "" {
					t.Errorf("%+v by %d: %s", tt.filter, limit, diff)
				}
			}
		}
	}
}

func reversed(ids []int64) []int64 {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

// collect reads all pages.
func collect(t *testing.T, o *order.Orders, f order.Filter) []int64 {
	t.Helper()
	var ids []int64
	for range 1000 {
		page, err := o.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Orders {
			ids = append(ids, x.ID)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return ids
		}
	}
	t.Fatalf("the list of %+v has no end", f)
	return nil
}

// What an order shows on its way: blocked, locked out with the lock granted,
// paused, in attention.
func TestOrderOnItsWay(t *testing.T) {
	t.Parallel()
	o, d := room(t, dbtest.WithScenarioClock())
	ctx := t.Context()
	added, err := o.Add(ctx, json.RawMessage(`[{"workflow":"w","queue":"Q1"},{"workflow":"v","due":"10m","queue":"Q1"}]`), me)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, d, `SELECT siding.intake(100, true)`)
	first := read(t, o, added[0].ID)
	if got, want := first.Word+" "+strings.Join(first.Gates, " ")+" "+first.LineKind+" "+first.Line, "blocked lock attachment lock L1"; got != want {
		t.Errorf("at first: %s, want %s", got, want)
	}
	if first.WaitDeadline == nil || first.WaitDeadline.Sub(first.AddedAt) != time.Hour || first.ReadyAt != nil {
		t.Errorf("waits until %v, ready at %v", first.WaitDeadline, first.ReadyAt)
	}
	second := read(t, o, added[1].ID)
	if second.Word != "scheduled" || second.DueAt == nil || second.DueAt.Sub(second.AddedAt) != 10*time.Minute {
		t.Errorf("scheduled: %+v", second)
	}

	exec(t, d, `SELECT siding.mark_attachment_complete($1, 'f', 'test')`, added[0].ID)
	exec(t, d, `SELECT siding.grant_locks((SELECT array_agg(resource_id) FROM siding.resources))`)
	granted := read(t, o, added[0].ID)
	if granted.Word != "ready" || granted.Line != "a1" || len(granted.Holds) != 1 || granted.Holds[0].Lock != "L1" || *granted.Holds[0].Weight != 1 {
		t.Errorf("granted: %+v", granted)
	}
	if err := o.Pause(ctx, "queue", "Q1", time.Time{}, me, "audit"); err != nil {
		t.Fatal(err)
	}
	if paused := read(t, o, added[0].ID); paused.Word != "paused" || !slices.Equal(paused.Gates, []string{"pause"}) {
		t.Errorf("paused: %s %v", paused.Word, paused.Gates)
	}
	if err := o.Suspend(ctx, added[0].ID, false, me, "lunch"); err != nil {
		t.Fatal(err)
	}
	if x := read(t, o, added[0].ID); x.State != "suspended" || x.Attention == nil || x.Attention.Reason != "suspended" || len(x.Gates) != 0 {
		t.Errorf("suspended: %+v", x)
	}
	if _, err := o.Get(ctx, 999); refusal(err) != "order_not_found" {
		t.Errorf("nobody: %v", err)
	}
	if _, err := o.History(ctx, 999); refusal(err) != "order_not_found" {
		t.Errorf("history of nobody: %v", err)
	}
	if _, err := o.Text(ctx, 999, order.TextRequest{Stream: "stdout", Limit: 1}); refusal(err) != "order_not_found" {
		t.Errorf("output of nobody: %v", err)
	}
}

// Output with a gap and an overlap.
func TestTextWithGaps(t *testing.T) {
	t.Parallel()
	o, d := room(t)
	added, err := o.Add(t.Context(), json.RawMessage(`[{"workflow":"v"}]`), me)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []struct {
		offset int
		data   string
	}{{0, "abc"}, {2, "cde"}, {10, "xyz"}} {
		exec(t, d, `INSERT INTO siding.output_text VALUES ($1, 1, siding.clock(), 'stdout', $2, $3)`, added[0].ID, piece.offset, []byte(piece.data))
	}
	for _, tt := range []struct {
		from, limit int64
		offset      int64
		data        string
	}{{0, 100, 0, "abcde"}, {3, 100, 3, "de"}, {3, 1, 3, "d"}, {5, 100, 10, "xyz"}, {11, 100, 11, "yz"}, {13, 100, 13, ""}} {
		text, err := o.Text(t.Context(), added[0].ID, order.TextRequest{Stream: "stdout", Offset: tt.from, Limit: tt.limit})
		if err != nil {
			t.Fatal(err)
		}
		if text.Offset != tt.offset || string(text.Data) != tt.data || text.Size != 13 {
			t.Errorf("from %d: %q at %d of %d, want %q at %d", tt.from, text.Data, text.Offset, text.Size, tt.data, tt.offset)
		}
	}
}

func read(t *testing.T, o *order.Orders, id int64) order.Order {
	t.Helper()
	x, err := o.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func exec(t *testing.T, d *db.DB, statement string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(context.WithoutCancel(t.Context()), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func refusal(err error) string {
	if r, ok := db.AsRefusal(err); ok {
		return r.Code
	}
	return ""
}
