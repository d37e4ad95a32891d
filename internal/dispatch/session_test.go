package dispatch_test

import (
	"errors"
	"testing"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
)

// What becomes of the orders that a session runs when it ends: closed, they go
// back uncounted; replaced or lost, the attempt counts. A job that must not be
// run twice unseen is a person's business in any case.
func TestEndsOfSessions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end     func(r *replica, session protocol.SessionID)
		plain   string // state of an order whose job is tried again
		careful string // and of one with on_lost: attention
		attempt int
		reason  string
	}{
		"closed": {func(r *replica, s protocol.SessionID) {
			if err := r.dispatch.CloseSession(r.t.Context(), s); err != nil {
				r.t.Fatal(err)
			}
		}, "ready", "attention", 0, "closed"},
		"replaced": {func(r *replica, s protocol.SessionID) {
			if _, err := r.dispatch.OpenSession(r.t.Context(), protocol.OpenRequest{Agent: "a1", Processes: 1, Previous: s}); err != nil {
				r.t.Fatal(err)
			}
		}, "scheduled", "attention", 1, "replaced"},
		"lost": {func(r *replica, s protocol.SessionID) {
			value[[]int32](r, `SELECT siding.end_session($1, 'lost')`, int64(s))
		}, "scheduled", "attention", 1, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := idle(t)
			ids := r.place("plain", "careful", "plain", "plain")
			session := r.open("a1")
			leases := r.now(session, 3)
			if err := r.orders.Cancel(t.Context(), ids[2], person, "test"); err != nil {
				t.Fatal(err)
			}
			tt.end(r, session)
			for i, want := range []string{tt.plain, tt.careful, "cancelled", "ready"} {
				if got := r.state(ids[i]); got != want {
					t.Errorf("order %d is %s, want %s", i, got, want)
				}
			}
			if n := value[int](r, `SELECT attempt FROM siding.orders WHERE id = $1`, ids[0]); n != tt.attempt {
				t.Errorf("%d attempts, want %d", n, tt.attempt)
			}
			if got := value[string](r, `SELECT end_reason FROM siding.sessions WHERE session_id = $1`, int64(session)); got != tt.reason {
				t.Errorf("ended as %s", got)
			}
			if _, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: session}); !errors.Is(err, protocol.ErrSessionGone) {
				t.Errorf("heartbeat afterwards: %v", err)
			}
			if got := r.report(session, done(leases[1])); got != "stale_lease" {
				t.Errorf("report afterwards: %s", got)
			}
			// An end is an end.
			tt.end(r, session)
			if n := value[int](r, `SELECT count(*) FROM siding.events WHERE kind LIKE 'session_%'`); n != 1 {
				t.Errorf("%d ends are recorded", n)
			}
		})
	}
}

func TestOpenSession(t *testing.T) {
	t.Parallel()
	r := idle(t)
	for _, agent := range []string{"nobody", "c1", ""} {
		_, err := r.dispatch.OpenSession(t.Context(), protocol.OpenRequest{Agent: agent, Processes: 1})
		refusal, ok := db.AsRefusal(err)
		if !errors.Is(err, protocol.ErrRefused) || !ok || refusal.Code != "unknown_agent" {
			t.Errorf("agent %q: %v", agent, err)
		}
	}
	// A previous session of another agent, and one that never was, are nobody's
	// business.
	mine := r.open("a2")
	for _, previous := range []protocol.SessionID{mine, 999} {
		if _, err := r.dispatch.OpenSession(t.Context(), protocol.OpenRequest{Agent: "a1", Processes: 1, Previous: previous}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: mine}); err != nil {
		t.Errorf("another agent's session: %v", err)
	}
}

// A draining member leaves its cluster's work to the others, and keeps its own
// line.
func TestDrainingMember(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("clustered", "plain", "clustered")
	upper, lower := r.open("a1"), r.open("a2")
	if got := r.now(lower, 5); len(got) != 0 {
		t.Errorf("the lower member got %+v", got)
	}
	if _, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: upper, Draining: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.now(upper, 5); len(got) != 1 || got[0].Order != ids[1] {
		t.Errorf("the draining member got %+v, want only its own", got)
	}
	if got := r.now(lower, 5); len(got) != 2 || got[0].Order != ids[0] || got[1].Order != ids[2] {
		t.Errorf("the lower member got %+v, want the cluster's", got)
	}
}
