package invariant_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fuseTables are written by the routines under test.
var fuseTables = []string{
	"orders", "outcomes", "runs", "bookings", "claims", "streams", "step_outputs", "events", "attentions", "sessions", "attachments", "uploads",
}

// Faults. The first one is passed on by whoever sets bad rows aside; the second
// one is such a bad row.
const (
	canceled = "57014"
	badRow   = "22012"
)

// layFuses makes the n-th writing statement of a session fail, where n is what
// the setting siding_test.fuse says.
func (r *racer) layFuses() {
	r.t.Helper()
	// A sequence goes on counting where a sub-transaction is undone.
	r.exec(r.t, r.ctx, `CREATE SEQUENCE siding.fuse_count`)
	r.exec(r.t, r.ctx, `
		CREATE FUNCTION siding.fuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('siding.fuse_count') = nullif(current_setting('siding_test.fuse', true), '')::int THEN
				RAISE EXCEPTION 'fuse' USING ERRCODE = current_setting('siding_test.code');
			END IF;
			RETURN NULL;
		END $$`)
	for _, table := range fuseTables {
		for _, when := range []string{"BEFORE", "AFTER"} {
			r.exec(r.t, r.ctx, fmt.Sprintf(`CREATE TRIGGER fuse_%s %s INSERT OR UPDATE OR DELETE ON siding.%s FOR EACH STATEMENT EXECUTE FUNCTION siding.fuse()`,
				when, when, table))
		}
	}
}

// digest is all that the database knows about orders.
const digest = `
	SELECT md5(concat_ws('|',
		(SELECT string_agg(o::text, ',' ORDER BY o.id) FROM siding.orders o), (SELECT string_agg(o::text, ',' ORDER BY o.order_id) FROM siding.outcomes o),
		(SELECT string_agg(r::text, ',' ORDER BY r.lease_no) FROM siding.runs r), (SELECT string_agg(b::text, ',' ORDER BY b.booking_no) FROM siding.bookings b),
		(SELECT string_agg(c::text, ',' ORDER BY c.session_id, c.request_id) FROM siding.claims c), (SELECT string_agg(a::text, ',' ORDER BY a.order_id) FROM siding.attentions a),
		(SELECT string_agg(s::text, ',' ORDER BY s.session_id) FROM siding.sessions s), (SELECT string_agg(a::text, ',' ORDER BY a.attachment_id) FROM siding.attachments a),
		(SELECT count(*) FROM siding.events)))`

// TestFaultBetweenStatements: each transaction that changes orders fails once
// before and once after each of its writing statements. Nothing of it stays,
// however far it came, and afterwards it can be done. Where one bad row is set
// aside, that row is as it was and the rest is done.
func TestFaultBetweenStatements(t *testing.T) {
	t.Parallel()
	r := newRacer(t)
	r.apply(t, r.ctx, `
kind: workflow
name: long
ordering: {key: order}
key_space: shared
defaults: {agent: a1, max_attempts: 2}
steps: [{job: j, noop: true}, {job: k, noop: true, agent: a2}]
`)
	r.layFuses()
	const report = `
		SELECT (siding.report(array_agg(o.session_id ORDER BY o.id), array_agg(o.id ORDER BY o.id), array_agg(o.lease_no ORDER BY o.id),
			array_agg((ARRAY['succeeded', 'failed', 'handed_back', 'succeeded', 'lost'])[1 + n % 5] ORDER BY o.id), array_agg(0), array_agg(NULL::text),
			array_agg('{"x": 1}'::jsonb))).accepted
		FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM siding.orders WHERE state = 'running') o`
	const addAll = `
		SELECT siding.add_orders('[{"workflow": "one", "key": "k1"}, {"workflow": "two", "key": "k1"}, {"workflow": "long", "key": "k2"}, {"workflow": "long", "key": "k2", "queue": "Q"},
			{"workflow": "one", "key": "k3", "queue": "Q"}, {"workflow": "long", "key": "k4"}, {"workflow": "one", "key": "k5", "attachments": [{"name": "f"}], "wait_limit": "0s"},
			{"workflow": "one", "key": "k6", "due": "1ms"}, {"workflow": "one", "key": "k7", "attachments": [{"name": "f", "content": "aGVsbG8="}]}]')`
	first := func(condition string) string { return `(SELECT min(id) FROM siding.orders WHERE ` + condition + `)` }
	claim := fmt.Sprintf(`SELECT count(*) FROM siding.claim((SELECT resource_id FROM siding.resources WHERE name = 'a1'), ARRAY[%d::bigint], ARRAY[gen_random_uuid()], ARRAY[4])`,
		r.sessions["a1"])
	steps := []struct{ name, statement string }{
		{"add", addAll},
		{"intake", `SELECT siding.intake(100)`},
		{"release", `SELECT siding.release_order_now(` + first(`key_closed`) + `, 'test', 'test')`},
		{"open due", `SELECT siding.open_due(10)`},
		{"complete", `SELECT siding.mark_attachment_complete(` + first(`attachment_closed`) + `, 'f', 'test')`},
		{"discard", `SELECT siding.discard_attachment((SELECT min(order_id) FROM siding.attachments WHERE state = 'complete'), 'f', 'test', 'test')`},
		{"wait limit", `SELECT siding.expire_waits(10)`},
		{"claim", claim},
		{"report", report},
		{"add again", addAll},
		{"intake again", `SELECT siding.intake(100)`},
		{"claim again", claim},
		{"suspend", `SELECT siding.suspend_order(` + first(`state = 'waiting'`) + `, false, 'test', 'test')`},
		{"resume", `SELECT siding.resume_order(` + first(`state = 'suspended'`) + `, 'test', 'test')`},
		{"assign", `SELECT siding.assign_order(` + first(`state = 'waiting' AND queue_id = 0`) + `, 'Q', 'test', 'test')`},
		{"stop", `SELECT siding.cancel_order_now(` + first(`state = 'running'`) + `, 'test', 'test')`},
		{"report of a stopped one", report},
		{"claim once more", claim},
		{"unacknowledged", `SELECT siding.return_unacknowledged(100, interval '0')`},
		{"claim at last", claim},
		{"end of a session", fmt.Sprintf(`SELECT siding.end_session(%d, 'lost')`, r.sessions["a1"])},
		{"resolve", `SELECT siding.resolve_order(` + first(`state = 'attention'`) + `, 'resume', 'test', 'test')`},
		{"cancel", `SELECT siding.cancel_order_now(` + first(`state = 'waiting'`) + `, 'test', 'test')`},
	}
	faults, aside := 0, 0
	for _, step := range steps {
		for _, code := range []string{canceled, badRow} {
			before := value[string](t, r.ctx, r.replica, digest)
			for n := 1; ; n++ {
				burnt, err := r.withFuse(step.statement, n, code)
				if !burnt {
					if err != nil {
						t.Fatalf("%s: %v", step.name, err)
					}
					break // it has fewer statements; what was tried is undone
				}
				faults++
				if after := value[string](t, r.ctx, r.replica, digest); before != after {
					t.Fatalf("%s: fault %d left something behind", step.name, n)
				}
				switch {
				case err == nil && code == canceled:
					t.Errorf("%s: fault %d was swallowed", step.name, n)
				case err == nil:
					aside++
				}
			}
		}
		r.exec(t, r.ctx, step.statement)
		sound(t, r.ctx, r.replica)
	}
	if faults < 100 || aside == 0 {
		t.Errorf("only %d faults were made, %d of them set aside", faults, aside)
	}
	t.Logf("%d faults, %d of them set aside", faults, aside)
}

// withFuse runs a statement whose n-th write fails, and undoes it. A fault that
// is set aside within the statement is no error; then the rest must be sound.
func (r *racer) withFuse(statement string, n int, code string) (burnt bool, err error) {
	r.t.Helper()
	tx, err := r.db.Pool.Begin(r.ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(r.ctx) }()
	_, err = tx.Exec(r.ctx, `SELECT setval('siding.fuse_count', 1, false), set_config('siding_test.fuse', $1, true), set_config('siding_test.code', $2, true)`,
		fmt.Sprint(n), code)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec(r.ctx, statement)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == code {
		return true, err
	}
	if err != nil {
		return false, err
	}
	if err := tx.QueryRow(r.ctx, `SELECT is_called AND last_value >= $1 FROM siding.fuse_count`, n).Scan(&burnt); err != nil || !burnt {
		return false, err
	}
	rows, err := tx.Query(r.ctx, `SELECT invariant || ' ' || subject FROM siding_report.invariants`)
	if err != nil {
		return true, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if len(found) > 0 {
		r.t.Errorf("broken with %q set aside at write %d: %q", statement, n, found)
	}
	return true, err
}
