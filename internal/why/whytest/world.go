// Package whytest is a small world of orders for the tests of what people are
// told about them: definitions, orders and sessions on a test database with the
// clock of scenarios, moved through the real routines.
package whytest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/order"
)

// Decider decides in tests.
var Decider = order.Person{Name: "ann"}

// World is one database.
type World struct {
	DB *db.DB
	// Orders decides about orders.
	Orders *order.Orders

	t        *testing.T
	sessions map[string]int64
	ids      map[string]int64
}

// New makes a world of the definitions in a YAML text. Options default to the
// clock of scenarios.
func New(t *testing.T, definitions string, opts ...dbtest.Option) *World {
	t.Helper()
	if opts == nil {
		opts = []dbtest.Option{dbtest.WithScenarioClock()}
	}
	d := dbtest.New(t, opts...)
	w := &World{DB: d, Orders: order.New(d, db.NoWaker{}), t: t, sessions: map[string]int64{}, ids: map[string]int64{}}
	w.Apply(definitions)
	return w
}

// Apply applies definitions.
func (w *World) Apply(definitions string) {
	w.t.Helper()
	docs, err := definition.Parse("test.yaml", []byte(definitions))
	if err == nil {
		_, err = catalog.New(w.DB, db.NoWaker{}).Apply(w.t.Context(), docs, Decider.Name)
	}
	if err != nil {
		w.t.Fatalf("apply definitions: %v", err)
	}
	w.Tick()
}

// Exec runs a statement.
func (w *World) Exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.DB.Pool.Exec(w.t.Context(), w.DB.SQL(statement), args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

// Value reads one value.
func Value[T any](w *World, statement string, args ...any) T {
	w.t.Helper()
	var v T
	if err := w.DB.Pool.QueryRow(w.t.Context(), w.DB.SQL(statement), args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// Add adds orders by one call and places them. Each is a JSON object as
// siding.add_orders takes it, with ref.
func (w *World) Add(orders ...string) {
	w.t.Helper()
	added, err := w.Orders.Add(w.t.Context(), json.RawMessage("["+strings.Join(orders, ",")+"]"), Decider)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, a := range added {
		var e struct{ Ref string }
		if err := json.Unmarshal([]byte(orders[i]), &e); err != nil {
			w.t.Fatal(err)
		}
		w.ids[e.Ref] = a.ID
	}
	w.Tick()
}

// Many adds n orders of a workflow with references from PREFIX1 on, perhaps
// with more fields, such as `"queue": "Q1"`.
func (w *World) Many(workflow, prefix string, n int, fields ...string) {
	w.t.Helper()
	orders := make([]string, n)
	for i := range orders {
		all := append([]string{fmt.Sprintf(`"workflow": %q, "ref": "%s%d"`, workflow, prefix, i+1)}, fields...)
		orders[i] = "{" + strings.Join(all, ", ") + "}"
	}
	w.Add(orders...)
}

// ID is the id of an order.
func (w *World) ID(ref string) int64 {
	w.t.Helper()
	id, ok := w.ids[ref]
	if !ok {
		w.t.Fatalf("no order %s was added", ref)
	}
	return id
}

// Refs names orders by their references.
func (w *World) Refs(ids []int64) []string {
	names := map[int64]string{}
	for ref, id := range w.ids {
		names[id] = ref
	}
	refs := []string{}
	for _, id := range ids {
		refs = append(refs, names[id])
	}
	return refs
}

// Flood copies the live row of an order n times, each with a new number, and of
// a keyed one with an arrival behind it: what n orders added in turn would have,
// without inputs.
func (w *World) Flood(ref string, n int) {
	w.t.Helper()
	w.Exec(`
		INSERT INTO siding.orders (id, position, added_at, ready_at, due_at, wait_deadline, key_hash, key_arrival, key_space_id, key, step_id, line_id,
			class_id, queue_id, state, due_closed, attachment_closed, key_closed, lock_closed, late, has_attachments)
		SELECT i, i << 20, o.added_at, o.ready_at, o.due_at, o.wait_deadline, o.key_hash, CASE WHEN o.key IS NOT NULL THEN nextval('siding.key_arrivals') END,
			o.key_space_id, o.key, o.step_id, o.line_id, o.class_id, o.queue_id, o.state, o.due_closed, o.attachment_closed,
			o.key IS NOT NULL, o.lock_closed, o.late, o.has_attachments
		FROM siding.orders o, LATERAL (SELECT nextval('siding.order_numbers') AS i FROM generate_series(1, $2) WHERE o.id > 0) n WHERE o.id = $1`, w.ID(ref), n)
}

// Tick brings due work, pauses, modes and intake up to the moment.
func (w *World) Tick() {
	w.t.Helper()
	for _, statement := range []string{
		`SELECT siding.intake(10000, true)`, `SELECT siding.open_due(10000)`, `SELECT siding.expire_waits(10000)`, `SELECT siding.expire_pauses()`,
		`SELECT siding.unmark_paused(10000)`, `SELECT siding.mark_paused(10000)`, `SELECT siding.update_line_modes()`,
	} {
		w.Exec(statement)
	}
}

// Advance moves the clock.
func (w *World) Advance(by time.Duration) {
	w.t.Helper()
	w.Exec(`SELECT siding.set_clock(siding.clock() + make_interval(secs => $1))`, by.Seconds())
	w.Tick()
}

// Open opens a session for an agent.
func (w *World) Open(agent string, processes int) {
	w.t.Helper()
	w.sessions[agent] = Value[int64](w, `SELECT session_id FROM siding.open_session($1, $2, 0, 'test', 1)`, agent, processes)
}

// Lose ends the session of an agent.
func (w *World) Lose(agent string) {
	w.t.Helper()
	w.Exec(`SELECT siding.end_session($1, 'lost')`, w.sessions[agent])
}

// Claim claims up to n orders for an agent and returns their references.
func (w *World) Claim(agent string, n int) []string {
	w.t.Helper()
	ids := Value[[]int64](w, `
		SELECT coalesce(array_agg(order_id ORDER BY lease_no), '{}')
		FROM siding.claim((SELECT agent_id FROM siding.sessions WHERE session_id = $1), ARRAY[$1::bigint], ARRAY[gen_random_uuid()], ARRAY[$2::int])`,
		w.sessions[agent], n)
	return w.Refs(ids)
}

// Report ends running attempts with an outcome.
func (w *World) Report(outcome string, refs ...string) {
	w.t.Helper()
	for _, ref := range refs {
		accepted := Value[bool](w, `
			SELECT (siding.report(ARRAY[o.session_id], ARRAY[o.id], ARRAY[o.lease_no], ARRAY[$2::text], ARRAY[1], ARRAY[NULL::text], ARRAY[NULL::jsonb])).accepted[1]
			FROM siding.orders o WHERE o.id = $1`, w.ID(ref), outcome)
		if !accepted {
			w.t.Fatalf("report of %s: not accepted", ref)
		}
	}
}

// Decide fails the test unless a decision is taken.
func (w *World) Decide(decision func(ctx context.Context) error) {
	w.t.Helper()
	if err := decision(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.Tick()
}

// Cost is what Postgres did for a query.
type Cost struct {
	// Buffers is how many pages were looked at, those of functions included.
	Buffers int
	// SeqScans names the tables that were read from end to end.
	SeqScans []string
}

type planNode struct {
	Type  string  `json:"Node Type"`
	Table string  `json:"Relation Name"`
	Hit   int     `json:"Shared Hit Blocks"`
	Read  int     `json:"Shared Read Blocks"`
	Loops float64 `json:"Actual Loops"`
	Plans []planNode
}

// Explain runs a query, twice, and tells what the second run cost.
func (w *World) Explain(query string, args ...any) Cost {
	w.t.Helper()
	var plans []struct{ Plan planNode }
	for range 2 {
		if err := json.Unmarshal(Value[[]byte](w, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+query, args...), &plans); err != nil {
			w.t.Fatal(err)
		}
	}
	cost := Cost{Buffers: plans[0].Plan.Hit + plans[0].Plan.Read}
	var walk func(n planNode)
	walk = func(n planNode) {
		if n.Type == "Seq Scan" && n.Loops > 0 {
			cost.SeqScans = append(cost.SeqScans, n.Table)
		}
		for _, p := range n.Plans {
			walk(p)
		}
	}
	walk(plans[0].Plan)
	return cost
}
