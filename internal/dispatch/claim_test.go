package dispatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/dispatch"
)

// A waiting claim is woken by whatever gives it an order; nobody polls here.
func TestClaimIsWoken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		agent string
		first []string // orders that are claimed before
		wake  func(r *replica, session protocol.SessionID, first []protocol.Lease) []int64
	}{
		"by an order": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return r.add("plain")
		}},
		"by an order that needs a place": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return r.add("keyed")
		}},
		"by an order at another replica": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return r.another().add("plain")
		}},
		"by a keyed order at another replica": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return r.another().add("keyed")
		}},
		"by an application's order": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return []int64{value[int64](r, `SELECT order_id FROM siding.add_orders('[{"workflow": "plain"}]')`)}
		}},
		"by an application's keyed order": {"a1", nil, func(r *replica, _ protocol.SessionID, _ []protocol.Lease) []int64 {
			return []int64{value[int64](r, `SELECT order_id FROM siding.add_orders('[{"workflow": "keyed", "key": "k"}]')`)}
		}},
		"by a process that comes free": {"one", []string{"narrow"}, func(r *replica, s protocol.SessionID, first []protocol.Lease) []int64 {
			ids := r.add("narrow")
			if _, err := r.dispatch.Report(r.t.Context(), s, []protocol.Report{done(first[0])}); err != nil {
				r.t.Fatal(err)
			}
			return ids
		}},
		"by the end of the predecessor": {"a1", []string{"keyed"}, func(r *replica, s protocol.SessionID, first []protocol.Lease) []int64 {
			ids := r.place("keyed")
			if _, err := r.dispatch.Report(r.t.Context(), s, []protocol.Report{done(first[0])}); err != nil {
				r.t.Fatal(err)
			}
			return ids
		}},
		"by a report at another replica": {"a1", []string{"keyed"}, func(r *replica, s protocol.SessionID, first []protocol.Lease) []int64 {
			ids := r.place("keyed")
			if _, err := r.another().dispatch.Report(r.t.Context(), s, []protocol.Report{done(first[0])}); err != nil {
				r.t.Fatal(err)
			}
			return ids
		}},
		"by an order handed back": {"a1", []string{"plain"}, func(r *replica, s protocol.SessionID, first []protocol.Lease) []int64 {
			if got := r.report(s, protocol.Report{LeaseRef: first[0].LeaseRef, Outcome: protocol.HandedBack}); got != "accepted" {
				r.t.Fatalf("report: %s", got)
			}
			return []int64{first[0].Order}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			session := r.open(tt.agent)
			var first []protocol.Lease
			if tt.first != nil {
				r.place(tt.first...)
				first = r.now(session, 1)
			}
			waiting := r.ask(session, 5)
			r.idles()
			ids := tt.wake(r, session, first)
			r.gets("the waiting claim", waiting, ids...)
		})
	}
}

// The member with the lower priority waits; it is called when the other is
// lost, at whichever replica that is noticed.
func TestLowerMemberIsCalled(t *testing.T) {
	t.Parallel()
	r := setup(t)
	upper, lower := r.open("a1"), r.open("a2")
	waiting := r.ask(lower, 5)
	r.idles()
	ids := r.add("clustered")
	r.idles() // it looked, and got nothing
	select {
	case a := <-waiting:
		t.Fatalf("the lower member got %+v", a)
	default:
	}
	if err := r.another().dispatch.CloseSession(t.Context(), upper); err != nil {
		t.Fatal(err)
	}
	r.gets("the lower member alone", waiting, ids...)

	// The upper one is back and gets what comes now.
	upper = r.open("a1")
	both := []<-chan answer{r.ask(lower, 5), r.ask(upper, 5)}
	ids = r.add("clustered")
	r.gets("the upper member", both[1], ids...)
	if got := value[int64](r, `SELECT session_id FROM siding.orders WHERE id = $1`, ids[0]); got != int64(upper) {
		t.Errorf("session %d runs it, want %d", got, upper)
	}
}

// A repeated request gets its first answer, whether the first one arrived or
// not, and at every replica.
func TestRepeatedClaim(t *testing.T) {
	t.Parallel()
	r := setup(t)
	ids := r.place("plain", "keyed", "plain", "plain")
	session := r.open("a1")
	req := protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 2}
	first, err := r.dispatch.Claim(t.Context(), req)
	if err != nil || len(first) != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	for name, d := range map[string]*dispatch.Dispatch{"here": r.dispatch, "elsewhere": r.another().dispatch} {
		again, err := d.Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("repeated %s: %s", name, diff)
		}
	}
	// What has ended is no part of the answer any more.
	r.report(session, done(first[0]))
	again, err := r.dispatch.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first[1:], again); diff != "" {
		t.Errorf("after one has ended: %s", diff)
	}
	// Another request, and the same id of another session, get others.
	r.gets("another request", r.ask(session, 1), ids[2])
	req.Session = r.open("a1")
	r.gets("another session", r.request(t.Context(), req), ids[3])
}

// Who goes away while a claim waits leaves the orders to others.
func TestWithdrawnClaim(t *testing.T) {
	t.Parallel()
	r := setup(t)
	session := r.open("a1")
	ctx, cancel := context.WithCancel(t.Context())
	gone := r.request(ctx, protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 5, WaitMillis: 60_000})
	r.idles()
	cancel()
	if a := <-gone; !errors.Is(a.err, context.Canceled) {
		t.Errorf("gone away: %+v", a)
	}
	short := r.request(t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 5, WaitMillis: 1})
	r.gets("nothing in time", short)
	ids := r.add("plain")
	r.gets("who still asks", r.ask(session, 5), ids...)
}

// Claims of many sessions are shared out, one each in turn; nothing is given
// twice.
func TestClaimsOfManySessions(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var answers []<-chan answer
	for range 10 {
		answers = append(answers, r.ask(r.open("a1"), 10))
	}
	r.idles()
	workflows := make([]string, 10)
	for i := range workflows {
		workflows[i] = "plain"
	}
	want := map[int64]bool{}
	for range 20 {
		for _, id := range r.add(workflows...) {
			want[id] = true
		}
	}
	got := map[int64]int{}
	for _, c := range answers {
		a := <-c
		if a.err != nil || len(a.leases) == 0 {
			t.Errorf("%d leases, %v", len(a.leases), a.err)
		}
		for _, l := range a.leases {
			got[l.Order]++
		}
	}
	for id, n := range got {
		if n != 1 || !want[id] {
			t.Errorf("order %d was given %d times", id, n)
		}
	}
	if len(got) > 100 {
		t.Errorf("%d orders run, the agent has 100 processes", len(got))
	}
}

func TestClaimRefusals(t *testing.T) {
	t.Parallel()
	r := setup(t)
	session := r.open("a1")
	if _, err := r.dispatch.Claim(t.Context(), protocol.ClaimRequest{Session: session, RequestID: "7", Slots: 1}); !errors.Is(err, protocol.ErrRefused) {
		t.Errorf("request id 7: %v", err)
	}
	if _, err := r.dispatch.Claim(t.Context(), protocol.ClaimRequest{Session: 999, RequestID: uuid.NewString(), Slots: 1}); !errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("unknown session: %v", err)
	}
	// Ended by another replica, which this one hasn't heard of.
	if err := r.another().dispatch.CloseSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	r.add("plain")
	if _, err := r.dispatch.Claim(t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 1}); !errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("ended session: %v", err)
	}
	if _, err := r.dispatch.ClaimNow(t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 1}); !errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("ended session, at once: %v", err)
	}
}

// When a replica stops, all who wait get an answer, however many there are.
func TestStopAnswersWaitingClaims(t *testing.T) {
	t.Parallel()
	first := idle(t)
	r := newReplica(t, first.db, dispatch.Config{MaxClaim: 2})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.dispatch.Run(ctx) }()
	session := r.open("a1")
	var answers []<-chan answer
	for range 5 {
		answers = append(answers, r.ask(session, 2))
		r.idles()
	}
	cancel()
	for _, c := range answers {
		if a := <-c; !errors.Is(a.err, context.Canceled) {
			t.Errorf("%+v", a)
		}
	}
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if err := r.dispatch.Run(t.Context()); err == nil {
		t.Error("Run was called twice")
	}
}
