package selector_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is one agent and one lock that list queues, with rows of orders that
// are made as the test wants them.
type world struct {
	t     *testing.T
	ctx   context.Context
	db    *db.DB
	agent int32
	lock  int32
	// steps of jobs without a limit and with limits of their own, and the
	// classes of these.
	steps   [3]int32
	classes [3]int32
	queues  map[string]int32
	names   map[int32]string
	session int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), db: dbtest.New(t, dbtest.WithScenarioClock()), queues: map[string]int32{}, names: map[int32]string{}}
	docs := ""
	for i := range 5 {
		docs += fmt.Sprintf("kind: queue\nname: Q%d\n---\n", i+1)
	}
	docs += "kind: lock\nname: L\ncapacity: 3\n---\nkind: agent\nname: a\ntype: standalone\nprocesses: 5\n---\n" + workflowText(2, 1)
	w.apply(t, docs)
	// The test itself says when a lock is granted.
	w.exec(`CREATE OR REPLACE FUNCTION siding.grant_next(p_lock int, OUT order_id bigint, OUT lines int[]) LANGUAGE plpgsql AS 'BEGIN END'`)
	w.agent = value[int32](w, `SELECT resource_id FROM siding.resources WHERE kind = 'agent'`)
	w.lock = value[int32](w, `SELECT resource_id FROM siding.resources WHERE kind = 'lock'`)
	for i, job := range []string{"free", "one", "two"} {
		w.steps[i] = value[int32](w, `SELECT step_id FROM siding.steps WHERE job = $1`, job)
		w.classes[i] = value[int32](w, `SELECT class_id FROM siding.steps WHERE job = $1`, job)
	}
	for i := range 5 {
		name := fmt.Sprintf("Q%d", i+1)
		id := value[int32](w, `SELECT queue_id FROM siding.queues WHERE name = $1`, name)
		w.queues[name], w.names[id] = id, name
	}
	return w
}

// workflowText is the workflow with jobs that have limits of their own.
func workflowText(one, two int) string {
	return fmt.Sprintf(`kind: workflow
name: w
ordering: independent
defaults: {agent: a}
steps: [{job: free, noop: true}, {job: one, noop: true, processes: %d}, {job: two, noop: true, processes: %d}]
`, one, two)
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (w *world) apply(t fataler, text string) {
	t.Helper()
	docs, err := definition.Parse("test.yaml", []byte(text))
	if err == nil {
		_, err = catalog.New(w.db, db.NoWaker{}).Apply(w.ctx, docs, "test")
	}
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, text)
	}
}

// reset empties the world but for its definitions, which are as in the
// beginning.
func (w *world) reset() {
	w.t.Helper()
	w.exec(`TRUNCATE siding.orders, siding.bookings, siding.claims, siding.pauses`)
	w.exec(`UPDATE siding.sessions SET ended_at = siding.clock() WHERE ended_at IS NULL`)
	w.exec(`UPDATE siding.lines SET mode = 'pass'`)
	w.session = value[int64](w, `SELECT session_id FROM siding.open_session('a', 100, 0, '', 0)`)
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func value[T any](w *world, statement string, args ...any) T {
	w.t.Helper()
	return valueOf[T](w, w.db.Pool, statement, args...)
}

func valueOf[T any](w *world, q queryer, statement string, args ...any) T {
	w.t.Helper()
	var v T
	if err := q.QueryRow(w.ctx, w.db.SQL(statement), args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.ctx, w.db.SQL(statement), args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}
