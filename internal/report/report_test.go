package report_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/schema"
	"github.com/siding-dev/siding/internal/why"
	"github.com/siding-dev/siding/internal/why/whytest"
)

const definitions = `
{kind: queue, name: Q1, capacity: 2}
---
{kind: lock, name: L1, capacity: 1, queues: [Q1]}
---
{kind: agent, name: a1, processes: 9, queues: [Q1]}
---
{kind: workflow, name: w, ordering: independent, wait_limit: 10m, defaults: {agent: a1, max_attempts: 2}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: two, ordering: independent, defaults: {agent: a1}, steps: [{job: one, noop: true}, {job: two, noop: true}]}
---
{kind: workflow, name: l, ordering: independent, defaults: {agent: a1}, steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: k, ordering: {key: order}, defaults: {agent: a1, max_attempts: 1}, steps: [{job: j, noop: true}]}
`

func setup(t *testing.T, opts ...dbtest.Option) *whytest.World {
	t.Helper()
	w := whytest.New(t, definitions, opts...)
	w.Open("a1", 9)
	return w
}

// table reads the rows of a query, each as its values in one line.
func table(w *whytest.World, t *testing.T, query string, args ...any) []string {
	t.Helper()
	rows, err := w.DB.Pool.Query(t.Context(), w.DB.SQL(query), args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		line := strings.TrimSpace(fmt.Sprintln(values...))
		return line, err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return lines
}

func expect(t *testing.T, w *whytest.World, query string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, table(w, t, query)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", query, diff)
	}
}

// life has an order in every state.
func life(t *testing.T, w *whytest.World) {
	t.Helper()
	w.Add(`{"workflow": "w", "ref": "done", "queue": "Q1"}`, `{"workflow": "two", "ref": "stepping"}`, `{"workflow": "k", "ref": "dead", "key": "C1"}`, `{"workflow": "w", "ref": "retry"}`)
	w.Claim("a1", 9)
	w.Report("succeeded", "done", "stepping")
	w.Report("failed", "dead", "retry")
	w.Add(`{"workflow": "l", "ref": "holder"}`)
	w.Add(
		`{"workflow": "l", "ref": "locked"}`, `{"workflow": "k", "ref": "held", "key": "C1"}`, `{"workflow": "w", "ref": "due", "due": "1h", "attachments": [{"name": "f"}]}`,
		`{"workflow": "w", "ref": "blocked", "queue": "Q1", "attachments": [{"name": "f"}, {"name": "g"}]}`, `{"workflow": "w", "ref": "suspended"}`, `{"workflow": "w", "ref": "cancelled"}`)
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Suspend(ctx, w.ID("suspended"), false, whytest.Decider, "hold on")
	})
	w.Decide(func(ctx context.Context) error { return w.Orders.Cancel(ctx, w.ID("cancelled"), whytest.Decider, "no") })
}

func TestOrdersAndTheirLists(t *testing.T) {
	t.Parallel()
	w := setup(t)
	life(t, w)
	expect(t, w, `SELECT ref, workflow, state, state_word, gates::text, step_path, job, attempts, queue, line_kind, line, coalesce(reason, '') FROM siding_report.orders ORDER BY order_id`,
		"done w finished finished {} 1 j 1 Q1 agent a1",
		"stepping two waiting ready {} 2 two 0 - agent a1",
		"dead k dead dead {} 1 j 1 - agent a1 attempts_used_up",
		"retry w waiting scheduled {due} 1 j 1 - agent a1",
		"holder l waiting ready {} 1.1 j 0 - agent a1",
		"locked l waiting locked_out {lock} 1.1 j 0 - lock L1",
		"held k waiting held {key} 1 j 0 - agent a1",
		"due w waiting scheduled {due,attachment} 1 j 0 - agent a1",
		"blocked w waiting blocked {attachment} 1 j 0 Q1 agent a1",
		"suspended w suspended suspended {} 1 j 0 - agent a1 suspended",
		"cancelled w cancelled cancelled {} 1 j 0 - agent a1")
	expect(t, w, `SELECT queue, list, ref FROM siding_report.queue_lists ORDER BY queue COLLATE "C", list, position`,
		"- dead dead", "- scheduled retry", "- scheduled due", "- suspended suspended",
		"- waiting stepping", "- waiting holder", "- waiting locked", "- waiting held", "Q1 waiting blocked")
	expect(t, w, `SELECT o.ref, r.step_path, r.agent, r.attempt, r.outcome FROM siding_report.runs r JOIN siding_report.orders o USING (order_id) ORDER BY r.lease_no`,
		"done 1 a1 1 succeeded", "stepping 1 a1 1 succeeded", "dead 1 a1 1 failed", "retry 1 a1 1 failed")
	expect(t, w, `SELECT ref, class, code, coalesce(subject, ''), coalesce(subject_ref, '') FROM siding_report.why_waiting WHERE code <> 'retry' ORDER BY order_id, code, subject`,
		"dead needs_you dead attempts_used_up",
		"locked later lock_busy L1",
		fmt.Sprintf("held needs_you key_held %d dead", w.ID("dead")),
		"due later attachment_pending f", "due later due j",
		"blocked later attachment_pending f", "blocked later attachment_pending g",
		"suspended needs_you suspended suspended")
	expect(t, w, `SELECT o.ref, a.name, a.state FROM siding_report.attachments a JOIN siding_report.orders o USING (order_id) ORDER BY 1, 2`,
		"blocked f pending", "blocked g pending", "due f pending")
	expect(t, w, `SELECT decision, person, coalesce(reason, '') FROM siding_report.decisions WHERE order_id IS NOT NULL ORDER BY event_no`,
		"suspend ann hold on", "suspended ann", "cancel ann no")
	w.Decide(func(ctx context.Context) error {
		return w.Orders.SetLineMode(ctx, "a1", "strict", whytest.Decider, "care")
	})
	expect(t, w, fmt.Sprintf(`SELECT line, agent_type, mode, reason, person, blocked, blocked_at_least, barrier_order_id = %d, paused FROM siding_report.lines`, w.ID("blocked")),
		"a1 standalone strict set_by_person ann 1 false true false")
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Pause(ctx, "queue", "Q1", time.Time{}, whytest.Decider, "repair")
	})
	expect(t, w, `SELECT ref, gates::text FROM siding_report.orders WHERE 'pause' = ANY (gates)`, "blocked {attachment,pause}")
}

func TestLineWaits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Many("w", "x", 2, `"queue": "Q1"`)
	w.Many("w", "y", 1)
	w.Advance(time.Minute)
	w.Claim("a1", 1)
	w.Advance(time.Minute)
	w.Claim("a1", 9)
	w.Report("succeeded", "x1", "x2", "y1")
	query := `SELECT line, queue, orders, p50::text, max::text FROM siding_report.line_waits ORDER BY queue COLLATE "C"`
	expect(t, w, query, "a1 - 1 00:02:00 00:02:00", "a1 Q1 2 00:01:30 00:02:00")
	w.Advance(25 * time.Hour)
	expect(t, w, query, []string{}...)
}

func TestKeyOrder(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Many("k", "a", 3, `"key": "A"`)
	w.Many("k", "b", 3, `"key": "B"`)
	w.Many("w", "n", 3)
	ordered := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), table(w, t, `SELECT key, order_id FROM siding_report.key_order ORDER BY order_id`)); diff != "" {
			t.Errorf("orders that overtook (-want +got):\n%s", diff)
		}
	}
	// A release lets one go ahead, recorded; the next waits for both.
	w.Decide(func(ctx context.Context) error { return w.Orders.Suspend(ctx, w.ID("b1"), false, whytest.Decider, "") })
	w.Decide(func(ctx context.Context) error { return w.Orders.Release(ctx, w.ID("b2"), whytest.Decider, "asked") })
	for len(w.Claim("a1", 1)) > 0 {
		w.Advance(time.Second)
		for _, ref := range []string{"a1", "a2", "a3", "b2", "n1", "n2", "n3"} {
			if whytest.Value[bool](w, `SELECT EXISTS (SELECT FROM siding.orders WHERE id = $1 AND state = 'running')`, w.ID(ref)) {
				w.Report("succeeded", ref)
			}
		}
		ordered()
	}
	if n := whytest.Value[int](w, `SELECT count(*) FROM siding.outcomes`); n != 7 {
		t.Fatalf("%d orders have ended, want 7", n)
	}

	// What a broken rule would leave behind is seen: started too early, by
	// however little, and before a live predecessor.
	w.Exec(`UPDATE siding.outcomes SET started_at = started_at - interval '10 s' WHERE order_id = $1`, w.ID("a3"))
	ordered(fmt.Sprint("A ", w.ID("a3")))
	w.Exec(`UPDATE siding.outcomes SET started_at = started_at + interval '10 s' WHERE order_id = $1`, w.ID("a3"))
	ordered()
	w.Exec(`UPDATE siding.outcomes SET started_at = started_at - interval '1 ms' WHERE order_id = $1`, w.ID("a2"))
	ordered(fmt.Sprint("A ", w.ID("a2")))
	w.Exec(`UPDATE siding.outcomes SET released = false WHERE order_id = $1`, w.ID("b2"))
	ordered(fmt.Sprint("A ", w.ID("a2")), fmt.Sprint("B ", w.ID("b2")))
}

// Each invariant is empty while orders live, and sees the fault that it is
// there for.
func TestInvariants(t *testing.T) {
	t.Parallel()
	for invariant, fault := range map[string]string{
		"two_active_of_key":       `UPDATE siding.orders SET started_at = added_at, key_closed = false WHERE key = 'C2' AND state = 'waiting'`,
		"process_limit_exceeded":  `UPDATE siding.resources SET processes = 0, updated_at = updated_at - interval '1 s' WHERE name = 'a1'`,
		"lock_capacity_exceeded":  `UPDATE siding.grants SET weight = 2, granted_at = granted_at + interval '1 s'`,
		"exclusive_not_alone":     `INSERT INTO siding.grants (order_id, lock_id, version_id, block_path, granted_at) SELECT o.id, g.lock_id, 1, '1', granted_at FROM siding.grants g, siding.orders o WHERE o.state = 'suspended'`,
		"grant_without_order":     `UPDATE siding.grants SET order_id = -1`,
		"running_without_session": `UPDATE siding.sessions SET ended_at = opened_at`,
		"lease_without_run":       `UPDATE siding.orders SET lease_no = 1 WHERE state = 'suspended'`,
		"candidate_in_no_stream":  `DELETE FROM siding.streams`,
		"candidate_below_floor":   `UPDATE siding.lines SET floor = 9223372036854775807`,
		"attachment_gate":         `UPDATE siding.orders SET attachment_closed = false WHERE attachment_closed`,
		"due_gate":                `UPDATE siding.orders SET due_closed = false WHERE due_closed`,
		"lock_gate":               `UPDATE siding.orders SET lock_closed = false WHERE lock_closed`,
		"key_gate":                `UPDATE siding.orders SET key_closed = false WHERE key_closed`,
		"parked_without_reason":   `DELETE FROM siding.attentions`,
		"live_and_ended":          `UPDATE siding.outcomes SET order_id = (SELECT min(id) FROM siding.orders)`,
	} {
		t.Run(invariant, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			life(t, w)
			w.Add(`{"workflow": "w", "ref": "running"}`, `{"workflow": "k", "ref": "active", "key": "C2"}`, `{"workflow": "k", "ref": "behind", "key": "C2"}`)
			w.Claim("a1", 9)
			w.Add(`{"workflow": "w", "ref": "last"}`)
			expect(t, w, `SELECT invariant, subject FROM siding_report.invariants`, []string{}...)
			if invariant == "two_active_of_key" {
				w.Exec(`DROP INDEX siding.orders_active_key`) // the tripwire
			}
			w.Exec(fault)
			found := table(w, t, `SELECT DISTINCT invariant FROM siding_report.invariants`)
			if !strings.Contains(" "+strings.Join(found, " ")+" ", " "+invariant+" ") {
				t.Errorf("after %s: found %v", fault, found)
			}
		})
	}
}

func TestEveryViewAndColumnHasAComment(t *testing.T) {
	t.Parallel()
	w := setup(t)
	expect(t, w, `
		SELECT c.relname || coalesce('.' || a.attname, '') FROM pg_class c
		LEFT JOIN LATERAL (SELECT NULL::name AS attname, 0 AS attnum UNION ALL SELECT a.attname, a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) a ON true
		WHERE c.relnamespace = 'siding_report'::regnamespace AND c.relkind = 'v' AND coalesce(col_description(c.oid, a.attnum), '') = ''
		  AND (a.attnum > 0 OR obj_description(c.oid) IS NULL)`, []string{}...)
}

// A role without any right on schema siding reads all views, and nothing else.
func TestReadOnlyRole(t *testing.T) {
	t.Parallel()
	w := setup(t, dbtest.WithConfig(db.Config{PreparedStatements: true}))
	life(t, w)
	role := fmt.Sprintf("siding_test_reader_%d", time.Now().UnixNano())
	w.Exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'reader'`)
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := w.DB.Pool.Exec(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	w.Exec(`SELECT siding.grant_report($1)`, role)
	w.Exec(`CREATE VIEW siding_report.added_later AS SELECT 1 AS one`)

	u, err := url.Parse(w.DB.Config().URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "reader")
	reader, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	views := table(w, t, `SELECT relname FROM pg_class WHERE relnamespace = 'siding_report'::regnamespace AND relkind = 'v'`)
	if len(views) != 11 {
		t.Errorf("views of siding_report: %v", views)
	}
	for _, view := range views {
		var n int
		if err := reader.QueryRow(t.Context(), `SELECT count(v::text) FROM siding_report.`+view+` v`).Scan(&n); err != nil {
			t.Errorf("read %s: %v", view, err)
		}
		if empty := view == "key_order" || view == "invariants"; empty != (n == 0) {
			t.Errorf("%s has %d rows", view, n)
		}
	}
	for _, statement := range []string{
		`SELECT FROM siding.orders`, `SELECT FROM siding.obstacles`, `SELECT siding.why(1)`, `CREATE TABLE siding_report.x (y int)`,
		`DELETE FROM siding_report.decisions`,
	} {
		_, err := reader.Exec(t.Context(), statement)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "42501" {
			t.Errorf("%s: got %v, want permission denied", statement, err)
		}
	}
}

// Under another name of the schema nothing refers to schema siding.
func TestOtherSchema(t *testing.T) {
	t.Parallel()
	name, err := db.NewSchema("other")
	if err != nil {
		t.Fatal(err)
	}
	address := dbtest.EmptyURL(t)
	if err := schema.Migrate(t.Context(), address, name, db.ProductionClock); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), db.Config{URL: address, Schema: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, view := range []string{"orders", "runs", "attachments", "decisions", "queue_lists", "line_waits", "lines", "why_waiting", "key_order", "invariants"} {
		var n int
		if err := d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM other_report.`+view).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d rows, %v", view, n, err)
		}
	}
	var r *db.Refusal
	if _, err := why.New(d).Of(t.Context(), 1); !errors.As(err, &r) || r.Code != "order_not_found" {
		t.Errorf("why: got %v", err)
	}
	if _, err := queue.New(d).List(t.Context(), queue.None, queue.Waiting, "", 0); err != nil {
		t.Error(err)
	}
	if _, err := queue.New(d).RefreshCounts(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := d.Pool.Exec(t.Context(), `SELECT other.grant_report(current_user)`); err != nil {
		t.Error(err)
	}
}
