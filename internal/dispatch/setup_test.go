package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const definitions = `
kind: agent
name: a1
processes: 100
---
kind: agent
name: a2
processes: 100
---
kind: agent
name: one
processes: 1
---
kind: agent
name: c1
type: cluster
processes: 100
members: [{agent: a1, priority: 10}, {agent: a2, priority: 1}]
---
kind: workflow
name: plain
ordering: independent
defaults: {agent: a1}
steps: [{job: j, noop: true}]
---
kind: workflow
name: keyed
ordering: {key: order}
defaults: {agent: a1}
steps: [{job: j, noop: true}]
---
kind: workflow
name: narrow
ordering: independent
defaults: {agent: one}
steps: [{job: j, noop: true}]
---
kind: workflow
name: clustered
ordering: independent
defaults: {agent: c1}
steps: [{job: j, noop: true}]
---
kind: workflow
name: careful
ordering: independent
defaults: {agent: a1, on_lost: attention}
steps: [{job: j, noop: true}]
`

// replica is one controller of a database.
type replica struct {
	t        *testing.T
	db       *db.DB
	orders   *order.Orders
	dispatch *dispatch.Dispatch
	looks    chan int // orders of each claim transaction
}

// setup makes a database with the definitions, and a replica that runs. It
// never looks by itself: what it finds it was woken for.
func setup(t *testing.T) *replica {
	t.Helper()
	r := idle(t)
	r.run()
	return r
}

// idle is a replica that doesn't run.
func idle(t *testing.T) *replica {
	t.Helper()
	d := dbtest.New(t)
	docs, err := definition.Parse("definitions.yaml", []byte(definitions))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	return newReplica(t, d, dispatch.Config{})
}

func newReplica(t *testing.T, d *db.DB, config dispatch.Config) *replica {
	r := &replica{t: t, db: d, looks: make(chan int, 10_000)}
	config.PollInterval, config.IntakeInterval = time.Hour, time.Hour
	config.Observer, config.Logger = observer{r.looks}, slog.New(slog.DiscardHandler)
	r.dispatch = dispatch.New(d, config)
	r.orders = order.New(d, r.dispatch)
	return r
}

// another is one more replica of the same database, which runs.
func (r *replica) another() *replica {
	r.t.Helper()
	other := newReplica(r.t, dbtest.Replica(r.t, r.db), dispatch.Config{})
	other.run()
	return other
}

func (r *replica) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.dispatch.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run: %v", err)
		}
	})
}

type observer struct{ looks chan int }

func (o observer) Claimed(orders int, _ time.Duration) {
	select {
	case o.looks <- orders:
	default:
	}
}
func (observer) Waited(string, string, time.Duration) {}
func (observer) Reported(int, time.Duration)          {}

// add adds orders of these workflows; "keyed" ones share a key.
func (r *replica) add(workflows ...string) []int64 {
	r.t.Helper()
	call := make([]map[string]string, len(workflows))
	for i, w := range workflows {
		call[i] = map[string]string{"workflow": w}
		if w == "keyed" {
			call[i]["key"] = "k"
		}
	}
	text, err := json.Marshal(call)
	if err != nil {
		r.t.Fatal(err)
	}
	added, err := r.orders.Add(r.t.Context(), text, order.Person{Name: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

// place adds orders and returns when they have their place.
func (r *replica) place(workflows ...string) []int64 {
	r.t.Helper()
	ids := r.add(workflows...)
	value[int](r, `SELECT placed FROM siding.intake(1000, true)`)
	return ids
}

func (r *replica) open(agent string) protocol.SessionID {
	r.t.Helper()
	s, err := r.dispatch.OpenSession(r.t.Context(), protocol.OpenRequest{Agent: agent, Processes: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.ID
}

type answer struct {
	leases []protocol.Lease
	err    error
}

// ask claims in the background, up to n orders with a long poll.
func (r *replica) ask(session protocol.SessionID, n int) <-chan answer {
	return r.request(r.t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: n, WaitMillis: 60_000})
}

func (r *replica) request(ctx context.Context, req protocol.ClaimRequest) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		leases, err := r.dispatch.Claim(ctx, req)
		answers <- answer{leases, err}
	}()
	return answers
}

// idles returns when a claim has found nothing.
func (r *replica) idles() {
	r.t.Helper()
	for n := range r.looks {
		if n == 0 {
			return
		}
	}
}

// gets fails the test unless the answer is these orders; it returns the leases.
func (r *replica) gets(what string, answers <-chan answer, ids ...int64) []protocol.Lease {
	r.t.Helper()
	a := <-answers
	if a.err != nil {
		r.t.Fatalf("%s: %v", what, a.err)
	}
	got := map[int64]bool{}
	for _, l := range a.leases {
		got[l.Order] = true
	}
	for _, id := range ids {
		if !got[id] || len(got) != len(ids) {
			r.t.Fatalf("%s: got %v, want %v", what, got, ids)
		}
	}
	if len(got) != len(ids) {
		r.t.Fatalf("%s: got %v, want %v", what, got, ids)
	}
	return a.leases
}

// now claims without waiting.
func (r *replica) now(session protocol.SessionID, n int) []protocol.Lease {
	r.t.Helper()
	leases, err := r.dispatch.ClaimNow(r.t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: n})
	if err != nil {
		r.t.Fatal(err)
	}
	return leases
}

// report reports and returns, per report, "accepted" or the code.
func (r *replica) report(session protocol.SessionID, reports ...protocol.Report) string {
	r.t.Helper()
	results, err := r.dispatch.ReportNow(r.t.Context(), session, reports)
	if err != nil {
		r.t.Fatal(err)
	}
	return words(results)
}

func words(results []protocol.ReportResult) string {
	list := make([]string, len(results))
	for i, result := range results {
		list[i], _, _ = strings.Cut(result.Code, ":")
		if result.Accepted {
			list[i] = "accepted" + list[i]
		}
	}
	return strings.Join(list, " ")
}

func done(l protocol.Lease) protocol.Report {
	return protocol.Report{LeaseRef: l.LeaseRef, Outcome: protocol.Succeeded}
}

// state is the word for an order's state.
func (r *replica) state(id int64) string {
	r.t.Helper()
	x, err := r.orders.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return x.Word
}

func value[T any](r *replica, statement string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.db.Pool.QueryRow(r.t.Context(), r.db.SQL(statement), args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
	return v
}
