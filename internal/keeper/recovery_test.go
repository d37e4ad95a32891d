package keeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/why/whytest"
)

// Leases that no heartbeat named go back after ten seconds and don't count;
// those that one named, or that were reported, are left alone.
func TestUnacknowledgedLeases(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Many("plain", "p", 3)
	session := r.session("a1")
	request := protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 3}
	leases, err := r.dispatch.ClaimNow(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.beat(session, leases[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dispatch.ReportNow(t.Context(), session, []protocol.Report{{LeaseRef: leases[1].LeaseRef, Outcome: protocol.Succeeded}}); err != nil {
		t.Fatal(err)
	}
	r.later(10*time.Second - moment)
	r.sweep()
	r.want("p3", "running", "a moment before the time is over")
	r.later(moment)
	if woken := r.sweep(); !woken["a1"] {
		t.Errorf("woke %v, want a1", woken)
	}
	r.want("p1", "running", "after the time")
	r.want("p2", "finished", "after the time")
	r.want("p3", "ready", "after the time")

	// The one that went back is no part of the answer any more, and stale.
	again, err := r.dispatch.ClaimNow(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(leases[:1], again); diff != "" {
		t.Errorf("the same request again: %s", diff)
	}
	results, err := r.dispatch.ReportNow(t.Context(), session, []protocol.Report{{LeaseRef: leases[2].LeaseRef, Outcome: protocol.Failed}})
	if err != nil || results[0].Code != "stale_lease" {
		t.Errorf("report of a lease that went back: %+v, %v", results, err)
	}
	next := r.claim(session, 3)
	if len(next) != 1 || next[0].Ref != "p3" || next[0].Attempt != 1 {
		t.Errorf("claimed anew: %+v, want p3 at its first attempt", next)
	}
}

// One sweep looks at all claims, and answers are forgotten in the end.
func TestManyUnacknowledgedClaims(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Many("plain", "p", 1)
	r.Flood("p1", 700)
	session := r.session("a1")
	for range 350 {
		r.claim(session, 2)
	}
	r.later(10 * time.Second)
	r.sweep()
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.orders WHERE state = 'running'`); n != 0 {
		t.Errorf("%d orders still run", n)
	}
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.claims WHERE settled`); n != 350 {
		t.Errorf("%d claims are settled, want 350", n)
	}
	r.later(10 * time.Minute)
	r.sweep()
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.claims`); n != 0 {
		t.Errorf("%d claims are remembered", n)
	}
}

// A silent session is lost only after a whole time to live (60 s) in which
// sweepers ticked without a break of more than 5 s.
func TestSilentSessions(t *testing.T) {
	t.Parallel()
	steady := func(seconds int) []int { return repeat(5, seconds/5) }
	for name, tt := range map[string]struct {
		pauses []int // seconds before each sweep
		lost   bool
	}{
		"just below":                       {steady(55), false},
		"a whole time":                     {steady(60), true},
		"nobody swept":                     {[]int{3600}, false},
		"just back after an outage":        {append([]int{3600}, steady(55)...), false},
		"a whole time after an outage":     {append([]int{3600}, steady(60)...), true},
		"a break in the middle":            {append(append(steady(40), 6), steady(50)...), false},
		"a whole time after a break":       {append(append(steady(40), 6), steady(60)...), true},
		"a break at the end":               {append(steady(55), 6), false},
		"the longest pause that is no gap": {repeat(5, 12), true},
		"gaps all the time":                {repeat(6, 25), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.Add(`{"workflow": "plain", "ref": "p"}`, `{"workflow": "careful", "ref": "c"}`)
			r.sweep()
			session := r.session("a1")
			leases := r.claim(session, 2)
			if err := r.beat(session, leases...); err != nil {
				t.Fatal(err)
			}
			for _, seconds := range tt.pauses {
				r.later(time.Duration(seconds) * time.Second)
				r.sweep()
			}
			err := r.beat(session, leases...)
			if lost := errors.Is(err, protocol.ErrSessionGone); lost != tt.lost {
				t.Fatalf("lost: %v (%v), want %v", lost, err, tt.lost)
			}
			if !tt.lost {
				r.want("p", "running", "alive")
				return
			}
			r.want("c", "attention", "lost")
			if got := r.state("p"); got != "scheduled" && got != "ready" {
				t.Errorf("lost, p is %s", got)
			}
			r.later(2 * time.Second)
			r.sweep()
			if again := r.claim(r.session("a1"), 2); len(again) != 1 || again[0].Ref != "p" || again[0].Attempt != 2 {
				t.Errorf("after the loss: %+v, want p at its second attempt", again)
			}
		})
	}
}

func repeat(seconds, times int) []int {
	all := make([]int, times)
	for i := range all {
		all[i] = seconds
	}
	return all
}

// A heartbeat keeps a session, and more silent ones than one transaction ends
// are all lost in one sweep.
func TestManySilentSessions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.sweep()
	kept := r.session("a1")
	for range 25 {
		r.session("a2")
	}
	for range 12 {
		r.later(5 * time.Second)
		if err := r.beat(kept); err != nil {
			t.Fatal(err)
		}
		r.sweep()
	}
	if open := whytest.Value[[]int64](r.World, `SELECT array_agg(session_id) FROM siding.sessions WHERE ended_at IS NULL`); !cmp.Equal(open, []int64{int64(kept)}) {
		t.Errorf("open sessions: %v, want %d", open, kept)
	}
	if n := whytest.Value[int](r.World, `SELECT count(*) FROM siding.sessions WHERE end_reason = 'lost'`); n != 25 {
		t.Errorf("%d are lost, want 25", n)
	}
}
