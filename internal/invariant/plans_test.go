package invariant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

// plan is a statement as auto_explain tells it.
type plan struct {
	Query string `json:"Query Text"`
	Plan  node
}

type node struct {
	Type    string  `json:"Node Type"`
	Table   string  `json:"Relation Name"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Hit     int     `json:"Shared Hit Blocks"`
	Read    int     `json:"Shared Read Blocks"`
	Plans   []node
}

func (n node) each(f func(node)) {
	f(n)
	for _, p := range n.Plans {
		p.each(f)
	}
}

// large are the tables that may hold millions of rows, partitions by prefix.
var large = []string{"orders", "inputs", "outcomes", "runs", "events", "attachments", "bookings", "order_references", "key_stripes", "claims", "sessions", "uploads"}

func isLarge(table string) bool {
	return slices.ContainsFunc(large, func(l string) bool { return table == l || strings.HasPrefix(table, l+"_2") })
}

// observed is a connection that tells the plans of all statements, also of
// those inside routines.
type observed struct {
	*pgx.Conn
	t     *testing.T
	plans []plan
}

func observe(t *testing.T, r *replica) *observed {
	t.Helper()
	o := &observed{t: t}
	config, err := pgx.ParseConfig(r.db.Config().URL)
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		_, text, found := strings.Cut(n.Message, "plan:\n")
		if !found {
			return
		}
		var p plan
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Errorf("plan: %v in %s", err, text)
		}
		o.plans = append(o.plans, p)
	}
	if o.Conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close(context.WithoutCancel(t.Context())) })
	o.do(`LOAD 'auto_explain'`)
	for name, setting := range map[string]string{
		"log_analyze": "on", "log_buffers": "on", "log_timing": "off", "log_nested_statements": "on", "log_format": "json", "log_level": "notice",
	} {
		o.do(fmt.Sprintf(`SET auto_explain.%s = %s`, name, setting))
	}
	return o
}

func (o *observed) do(statement string, args ...any) {
	o.t.Helper()
	if _, err := o.Exec(o.t.Context(), statement, args...); err != nil {
		o.t.Fatalf("%s: %v", statement, err)
	}
}

// look runs a statement with its plans told and returns the pages that it
// touched.
func (o *observed) look(what, statement string, args ...any) (pages int) {
	o.t.Helper()
	o.do(`SET auto_explain.log_min_duration = 0`)
	o.plans = nil
	o.do(statement, args...)
	plans := o.plans
	o.do(`SET auto_explain.log_min_duration = -1`)
	if len(plans) < 2 {
		o.t.Fatalf("%s: %d plans were told, those inside the routine are missing", what, len(plans))
	}
	for _, p := range plans {
		pages = max(pages, p.Plan.Hit+p.Plan.Read)
		p.Plan.each(func(n node) {
			switch {
			case !isLarge(n.Table) || n.Loops == 0:
			case n.Type == "Seq Scan":
				o.t.Errorf("%s reads all of %s: %s", what, n.Table, p.Query)
			case n.Removed*n.Loops > 1000:
				o.t.Errorf("%s (%s) reads %.0f rows of %s for nothing: %s", what, n.Type, n.Removed*n.Loops, n.Table, p.Query)
			}
		})
	}
	return pages
}

// TestPlansBehindManyOrders: 100,000 orders are blocked or held and 1,000 are
// ready; everything that happens often goes by index and touches a bounded
// number of pages, however old the statistics are and however early the plans
// were made.
func TestPlansBehindManyOrders(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed before it grew %t", analyzed), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			r := newReplica(dbtest.New(t), anyGap)
			r.apply(t, ctx, strings.ReplaceAll(loadDefinitions, "processes: 6", "processes: 100000"))
			s, err := r.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 1000})
			if err != nil {
				t.Fatal(err)
			}
			r.exec(t, ctx, `ALTER TABLE siding.orders SET (autovacuum_enabled = false)`)
			agent := value[int32](t, ctx, r, `SELECT resource_id FROM siding.resources WHERE name = 'a1'`)
			add := func(text string) int64 {
				t.Helper()
				id := value[int64](t, ctx, r, `SELECT max(order_id) FROM siding.add_orders($1::jsonb)`, text)
				r.exec(t, ctx, `SELECT siding.intake(10000, true)`)
				return id
			}
			const keyed = `[{"workflow": "keyed", "key": "%[1]s"}, {"workflow": "keyed", "key": "%[1]s"}, {"workflow": "free"}, {"workflow": "free", "queue": "Q1"}, {"workflow": "free", "queue": "Q2"}]`
			const claim = `SELECT FROM siding.claim($1, ARRAY[$2::bigint], ARRAY[gen_random_uuid()], ARRAY[$3::int])`
			const report = `
				SELECT (siding.report(array_agg(session_id ORDER BY id), array_agg(id ORDER BY id), array_agg(lease_no ORDER BY id),
					array_agg('succeeded'::text), array_agg(0), array_agg(NULL::text), array_agg(NULL::jsonb))).accepted
				FROM (SELECT * FROM siding.orders WHERE agent_id = $1 AND state = 'running' ORDER BY lease_no LIMIT $2) o`

			// A connection whose plans are made while there is next to nothing.
			early := observe(t, r)
			for i := range 8 {
				add(fmt.Sprintf(keyed, fmt.Sprint("early", i)))
				early.do(claim, agent, s.ID, 3)
				early.do(report, agent, 3)
				early.do(`SELECT siding.add_orders($1::jsonb, 'test')`, fmt.Sprintf(keyed, fmt.Sprint("early", i)))
				early.do(`SELECT siding.intake(1000)`)
				early.do(`SELECT siding.open_due(500)`)
				early.do(`SELECT siding.expire_waits(500)`)
				early.do(`SELECT siding.update_line_modes()`)
			}
			if analyzed {
				r.exec(t, ctx, `ANALYZE`)
			}

			blocked := add(`[{"workflow": "free", "queue": "Q1", "attachments": [{"name": "f"}], "wait_limit": "1h"}]`)
			add(`[{"workflow": "keyed", "key": "long"}]`)
			held := add(`[{"workflow": "keyed", "key": "long"}]`)
			ready := add(`[{"workflow": "free"}]`)
			const flood = `
				INSERT INTO siding.orders (id, position, added_at, ready_at, wait_deadline, key_hash, key_arrival, key_space_id, key, step_id, line_id, class_id,
					queue_id, attachment_closed, key_closed, has_attachments)
				SELECT i, i << 20, o.added_at, o.ready_at, o.wait_deadline, o.key_hash, CASE WHEN o.key IS NOT NULL THEN nextval('siding.key_arrivals') END,
					o.key_space_id, o.key, o.step_id, o.line_id, o.class_id, o.queue_id, o.attachment_closed, o.key_closed, o.has_attachments
				FROM siding.orders o, LATERAL (SELECT nextval('siding.order_numbers') AS i FROM generate_series(1, $2) WHERE o.id > 0) n WHERE o.id = $1`
			r.exec(t, ctx, flood, blocked, 50000)
			r.exec(t, ctx, flood, held, 50000)
			r.exec(t, ctx, flood, ready, 1000)
			r.exec(t, ctx, `INSERT INTO siding.inputs (order_id, added_at, added_by, args) SELECT id, added_at, 'test', '{"a": 1}' FROM siding.orders o
				WHERE NOT EXISTS (SELECT FROM siding.inputs i WHERE i.order_id = o.id)`)
			r.exec(t, ctx, `SELECT siding.update_line_modes()`)

			for name, conn := range map[string]*observed{"early plans": early, "new connection": observe(t, r)} {
				bound := func(what string, most int, statement string, args ...any) {
					t.Helper()
					if pages := conn.look(name+", "+what, statement, args...); pages > most {
						t.Errorf("%s: %s touched %d pages, at most %d are right", name, what, pages, most)
					} else {
						t.Logf("%s: %s touched %d pages", name, what, pages)
					}
				}
				bound("claim of 100", 12000, claim, agent, s.ID, 100)
				bound("inputs of 100", 1500, `SELECT * FROM siding.inputs_of((SELECT array_agg(id) FROM siding.orders WHERE agent_id = $1 AND state = 'running'),
					now() - interval '1 hour', now())`, agent)
				bound("heartbeat with 100", 2500, `SELECT siding.heartbeat($1, array_agg(id), array_agg(lease_no)) FROM siding.orders WHERE agent_id = $2 AND state = 'running'`,
					s.ID, agent)
				bound("stale report", 2000, `SELECT siding.report(ARRAY[$1::bigint], ARRAY[1::bigint], ARRAY[999999999::bigint], ARRAY['succeeded'], ARRAY[0], ARRAY[NULL::text], ARRAY[NULL::jsonb])`,
					s.ID)
				bound("report of 100", 12000, report, agent, 100)
				bound("claim of 1", 800, claim, agent, s.ID, 1)
				bound("add to a long key", 2000, `SELECT siding.add_orders('[{"workflow": "keyed", "key": "long"}]', 'test')`)
				bound("intake", 1500, `SELECT siding.intake(1000)`)
				bound("due sweep", 500, `SELECT siding.open_due(500)`)
				bound("wait limits", 500, `SELECT siding.expire_waits(500)`)
				head := value[int64](t, ctx, r, `SELECT id FROM siding.orders WHERE key = 'long' ORDER BY key_arrival LIMIT 1`)
				bound("cancel of the head of a long key", 2500, `SELECT siding.cancel_order_now($1, 'test', 'test')`, head)
				last := value[int64](t, ctx, r, `SELECT id FROM siding.orders WHERE key = 'long' AND NOT released ORDER BY key_arrival DESC LIMIT 1`)
				bound("release in a long key", 2500, `SELECT siding.release_order_now($1, 'test', 'test')`, last)
				bound("claim of a contested key", 2500, claim, agent, s.ID, 1)
				bound("move", 2500, `SELECT siding.move_order($1, 'first', NULL, 'test', 'test')`, blocked)
			}
		})
	}
}
