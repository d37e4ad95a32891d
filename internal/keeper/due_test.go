package keeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/why/whytest"
)

const moment = time.Millisecond

func TestDueOrdersOpen(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Add(`{"workflow": "plain", "ref": "soon", "due": "10m"}`, `{"workflow": "plain", "ref": "late", "due": "11m"}`)
	r.later(10*time.Minute - moment)
	r.sweep()
	r.want("soon", "scheduled", "a moment before it is due")
	r.later(moment)
	if woken := r.sweep(); !woken["a1"] {
		t.Errorf("woke %v, want a1", woken)
	}
	r.want("soon", "ready", "when it is due")
	r.want("late", "scheduled", "before it is due")
	x, err := r.Orders.Get(t.Context(), r.ID("soon"))
	if err != nil || x.ReadyAt == nil || !x.ReadyAt.Equal(*x.DueAt) {
		t.Errorf("ready at %v, due at %v (%v)", x.ReadyAt, x.DueAt, err)
	}
}

// A sweep goes on until nothing is left, however many are due.
func TestManyDueOrders(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Many("plain", "p", 1201, `"due": "10m"`)
	r.later(10 * time.Minute)
	r.sweep()
	if got := len(r.claim(r.session("a1"), 1000)); got != 1000 {
		t.Errorf("%d orders can be claimed, want 1000", got)
	}
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.orders WHERE due_closed`); n != 0 {
		t.Errorf("%d orders are still due", n)
	}
}

// A failed attempt is tried again when its backoff is over: 2 s, then 8 s.
func TestRetriesOpen(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Add(`{"workflow": "plain", "ref": "p"}`)
	session := r.session("a1")
	for _, backoff := range []time.Duration{2 * time.Second, 8 * time.Second} {
		lease := r.claim(session, 1)[0]
		if _, err := r.dispatch.ReportNow(t.Context(), session, []protocol.Report{{LeaseRef: lease.LeaseRef, Outcome: protocol.Failed}}); err != nil {
			t.Fatal(err)
		}
		r.later(backoff - moment)
		r.sweep()
		r.want("p", "scheduled", "a moment before its backoff is over")
		r.later(moment)
		r.sweep()
		r.want("p", "ready", "when its backoff is over")
	}
}

func TestWaitLimits(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Add(`{"workflow": "scanned", "ref": "hour"}`,
		`{"workflow": "scanned", "ref": "own", "wait_limit": "2h"}`,
		`{"workflow": "scanned", "ref": "due", "due": "30m"}`,
		`{"workflow": "scanned", "ref": "there"}`,
		`{"workflow": "plain", "ref": "unlimited", "attachments": [{"name": "f"}]}`)
	r.Exec(`SELECT siding.mark_attachment_complete($1, 'scan', 'test')`, r.ID("there"))
	want := func(when string, states ...string) {
		t.Helper()
		r.sweep()
		for i, ref := range []string{"hour", "own", "due", "there", "unlimited"} {
			r.want(ref, states[i], when)
		}
	}
	r.later(time.Hour - moment)
	want("a moment before the limit", "blocked", "blocked", "blocked", "ready", "blocked")
	r.later(moment)
	want("at the limit", "attention", "blocked", "blocked", "ready", "blocked")
	x, err := r.Orders.Get(t.Context(), r.ID("hour"))
	if err != nil {
		t.Fatal(err)
	}
	if x.Attention == nil || x.Attention.Reason != "attachment_wait_limit" {
		t.Errorf("attention: %+v", x.Attention)
	}
	// The limit counts from the latest of added, due and resumed.
	r.later(30 * time.Minute)
	want("an hour after it was due", "attention", "blocked", "attention", "ready", "blocked")
	if err := r.Orders.Resolve(t.Context(), r.ID("hour"), "resume", whytest.Decider, "again"); err != nil {
		t.Fatal(err)
	}
	r.later(30 * time.Minute)
	want("after two hours", "blocked", "attention", "attention", "ready", "blocked")
	r.later(30 * time.Minute)
	want("an hour after it was resumed", "attention", "attention", "attention", "ready", "blocked")
	r.later(1000 * time.Hour)
	want("ages later", "attention", "attention", "attention", "ready", "blocked")
}

// pause pauses for an hour, or (0) until resumed.
func (r *room) pause(kind, name string, length time.Duration) {
	r.t.Helper()
	var until time.Time
	if length > 0 {
		until = whytest.Value[time.Time](r.World, `SELECT siding.clock()`).Add(length)
	}
	if err := r.Orders.Pause(r.t.Context(), kind, name, until, whytest.Decider, "test"); err != nil {
		r.t.Fatal(err)
	}
}

// claimable takes back what can be claimed, and names it.
func (r *room) claimable(session protocol.SessionID) string {
	r.t.Helper()
	names := ""
	var reports []protocol.Report
	for _, l := range r.claim(session, 1000) {
		names += l.Ref + " "
		reports = append(reports, protocol.Report{LeaseRef: l.LeaseRef, Outcome: protocol.HandedBack})
	}
	if _, err := r.dispatch.ReportNow(r.t.Context(), session, reports); err != nil {
		r.t.Fatal(err)
	}
	return names
}

func TestPausesWithAnEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, name string
		during     string // what can be claimed meanwhile
		woken      string // line that is woken when it ends
	}{
		{"queue", "Q1", "plain locked ", "a1"},
		{"agent", "a1", "", "a1"},
		{"lock", "L1", "queued plain ", "L1"},
		{"workflow", "plain", "locked ", "a1"},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.pause(tt.kind, tt.name, time.Hour)
			r.Add(`{"workflow": "plain", "ref": "queued", "queue": "Q1"}`, `{"workflow": "plain", "ref": "plain"}`, `{"workflow": "locked", "ref": "locked"}`)
			session := r.session("a1")
			r.later(time.Hour - moment)
			r.sweep()
			if got := r.claimable(session); got != tt.during {
				t.Errorf("paused: %q, want %q", got, tt.during)
			}
			r.later(moment)
			if woken := r.sweep(); !woken[tt.woken] {
				t.Errorf("woke %v, want %s", woken, tt.woken)
			}
			if got := r.claimable(session); got != "queued plain locked " {
				t.Errorf("after the pause: %q", got)
			}
			if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.events WHERE kind = 'unpause'`); n != 1 {
				t.Errorf("%d events of the end", n)
			}
		})
	}
}

// The gates of a paused workflow's orders close and open: those that waited
// before, at an agent or at a lock, and those that come meanwhile.
func TestPauseGates(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Add(`{"workflow": "locked", "ref": "holder"}`, `{"workflow": "locked", "ref": "next"}`, `{"workflow": "plain", "ref": "plain"}`)
	session := r.session("a1")
	r.pause("workflow", "locked", 0)
	// Picks leave them out from that moment.
	if got := r.claimable(session); got != "plain " {
		t.Errorf("at the moment of the pause: %q", got)
	}
	r.sweep()
	r.Add(`{"workflow": "locked", "ref": "new"}`)
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.orders WHERE pause_closed`); n != 3 {
		t.Errorf("%d of 3 pause gates are closed", n)
	}
	r.want("holder", "paused", "while the workflow is paused")
	r.later(1000 * time.Hour)
	r.sweep()
	r.want("holder", "paused", "as long as nobody resumes it")
	if err := r.Orders.Unpause(t.Context(), "workflow", "locked", whytest.Decider, ""); err != nil {
		t.Fatal(err)
	}
	if woken := r.sweep(); !woken["a1"] || !woken["L1"] {
		t.Errorf("woke %v, want a1 and L1", woken)
	}
	r.want("holder", "ready", "resumed")
	r.want("next", "locked_out", "resumed")
	r.want("new", "locked_out", "resumed")
	if got := r.claimable(session); got != "holder plain " {
		t.Errorf("resumed: %q", got)
	}
}

// More than one batch is marked and unmarked by one sweep.
func TestManyPauseGates(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Add(`{"workflow": "plain", "ref": "p"}`)
	r.Flood("p", 1200)
	count := func() int {
		return whytest.Value[int](r.World, `SELECT count(*) FROM siding.orders WHERE pause_closed`)
	}
	r.pause("workflow", "plain", 0)
	r.sweep()
	if n := count(); n != 1201 {
		t.Errorf("%d of 1201 are paused", n)
	}
	if err := r.Orders.Unpause(t.Context(), "workflow", "plain", whytest.Decider, ""); err != nil {
		t.Fatal(err)
	}
	r.sweep()
	if n := count(); n != 0 {
		t.Errorf("%d are still paused", n)
	}
}

// The number of blocked orders turns a line strict above its limit, and back at
// 80 % of it.
func TestTooManyBlocked(t *testing.T) {
	t.Parallel()
	r := setup(t)
	mode := func() string {
		return whytest.Value[string](r.World, `
			SELECT mode || coalesce(' ' || reason, '') FROM siding.lines
			WHERE line_id = (SELECT resource_id FROM siding.resources WHERE kind = 'agent' AND name = 'a2')`)
	}
	want := func(when, want string) {
		t.Helper()
		r.sweep()
		if got := mode(); got != want {
			t.Errorf("with %s: %s, want %s", when, got, want)
		}
	}
	r.Many("scanned", "s", 10)
	want("10 blocked of at most 10", "pass")
	r.Many("scanned", "t", 1)
	want("11", "strict too_many_blocked")
	arrive := func(ref string) { r.Exec(`SELECT siding.mark_attachment_complete($1, 'scan', 'test')`, r.ID(ref)) }
	arrive("s1")
	arrive("s2")
	want("9, down from 11", "strict too_many_blocked")
	arrive("s3")
	want("8", "pass")
	r.Many("scanned", "u", 2)
	want("10 again", "pass")
	if err := r.Orders.SetLineMode(t.Context(), "a2", "strict", order.Person{Name: "ann"}, "audit"); err != nil {
		t.Fatal(err)
	}
	want("a person's mode", "strict set_by_person")
	if err := r.Orders.SetLineMode(context.WithoutCancel(t.Context()), "a2", "auto", order.Person{Name: "ann"}, "done"); err != nil {
		t.Fatal(err)
	}
	want("the facts again", "pass")
}
