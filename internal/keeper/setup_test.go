package keeper_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/why/whytest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const definitions = `
kind: queue
name: Q1
---
kind: lock
name: L1
capacity: 1
---
kind: agent
name: a1
processes: 1000
---
kind: agent
name: a2
processes: 1000
max_blocked: 10
---
kind: workflow
name: plain
ordering: independent
defaults: {agent: a1, backoff: {first: 2s}, max_attempts: 3}
steps: [{job: j, noop: true}]
---
kind: workflow
name: careful
ordering: independent
defaults: {agent: a1, on_lost: attention}
steps: [{job: j, noop: true}]
---
kind: workflow
name: locked
ordering: independent
defaults: {agent: a1}
steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}]}]
---
kind: workflow
name: scanned
ordering: independent
wait_limit: 1h
attachments: [{name: scan}]
defaults: {agent: a2}
steps: [{job: j, noop: true}]
`

// room is a world that only its keeper moves: time passes by later, and what is
// due is done by sweep.
type room struct {
	*whytest.World
	t        *testing.T
	keeper   *keeper.Keeper
	dispatch *dispatch.Dispatch
	woken    *wakes
}

func setup(t *testing.T, opts ...dbtest.Option) *room {
	t.Helper()
	w := whytest.New(t, definitions, opts...)
	woken := &wakes{}
	return &room{
		World: w, t: t, woken: woken,
		keeper:   keeper.New(w.DB, woken, keeper.Config{Logger: slog.New(slog.DiscardHandler)}),
		dispatch: dispatch.New(w.DB, dispatch.Config{}),
	}
}

// later lets time pass.
func (r *room) later(by time.Duration) {
	r.t.Helper()
	r.Exec(`SELECT siding.set_clock(siding.clock() + make_interval(secs => $1))`, by.Seconds())
}

// sweep does what is due and returns the names of the lines it woke.
func (r *room) sweep() map[string]bool {
	r.t.Helper()
	if err := r.keeper.Sweep(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, line := range r.woken.take() {
		names[whytest.Value[string](r.World, `SELECT name FROM siding.resources WHERE resource_id = $1`, line)] = true
	}
	return names
}

// state is the one word for an order: its state, or with closed gates what
// they make of it.
func (r *room) state(ref string) string {
	r.t.Helper()
	x, err := r.Orders.Get(r.t.Context(), r.ID(ref))
	if err != nil {
		r.t.Fatal(err)
	}
	return x.Word
}

func (r *room) want(ref, state, when string) {
	r.t.Helper()
	if got := r.state(ref); got != state {
		r.t.Errorf("%s, %s is %s, want %s", when, ref, got, state)
	}
}

// session opens a session of an agent.
func (r *room) session(agent string) protocol.SessionID {
	r.t.Helper()
	s, err := r.dispatch.OpenSession(r.t.Context(), protocol.OpenRequest{Agent: agent, Processes: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.ID
}

// claim claims up to n orders in one request.
func (r *room) claim(session protocol.SessionID, n int) []protocol.Lease {
	r.t.Helper()
	leases, err := r.dispatch.ClaimNow(r.t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: n})
	if err != nil {
		r.t.Fatal(err)
	}
	return leases
}

// beat sends a heartbeat that names leases.
func (r *room) beat(session protocol.SessionID, leases ...protocol.Lease) error {
	req := protocol.HeartbeatRequest{Session: session}
	for _, l := range leases {
		req.Leases = append(req.Leases, l.LeaseRef)
	}
	_, err := r.dispatch.Heartbeat(r.t.Context(), req)
	return err
}

// wakes collects the lines that were woken.
type wakes struct {
	mu    sync.Mutex
	lines []int32
}

var _ db.Waker = (*wakes)(nil)

func (w *wakes) Wake(lines ...int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, lines...)
}

func (*wakes) WakeIntake() {}

func (w *wakes) take() []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}
