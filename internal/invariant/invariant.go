// Package invariant checks that Siding kept its rules: what must hold at every
// moment, what must hold of all that was recorded, and what agents saw.
//
// Nothing here decides anything. Tests, the demo and operators run it against a
// database, also while it is in use: everything is read in one snapshot.
package invariant

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Violation is a rule that was broken.
type Violation struct {
	// Rule is a stable name: two_active_of_key, process_limit_exceeded ...
	Rule string
	// Subject is the order, agent, key or lease that it is about.
	Subject string
	// Detail is what was found, for a person.
	Detail string
}

// String is the violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%s: %s %s", v.Rule, v.Subject, v.Detail) }

// moment holds at every moment. The views of siding_report are what operators
// see; the statements besides are too narrow for them, or too dear.
const moment = `
	SELECT invariant, subject, detail::text FROM siding_report.invariants
UNION ALL
	-- Whatever the gates say.
	SELECT 'two_running_of_key', k.name || '/' || o.key, array_agg(o.id ORDER BY o.id)::text
	FROM siding.orders o JOIN siding.key_spaces k ON k.key_space_id = o.key_space_id
	WHERE o.state = 'running' AND o.key IS NOT NULL
	GROUP BY k.name, o.key HAVING count(*) > 1
UNION ALL
	-- A lowered limit stops nothing; but then nothing starts until there is room again.
	SELECT 'job_limit_exceeded', k.job, format('%s running, limit %s', count(*), k.processes)
	FROM siding.orders o JOIN siding.job_classes k ON k.class_id = o.class_id JOIN siding.workflows w ON w.workflow_id = k.workflow_id
	WHERE o.state = 'running' AND o.class_id > 0
	GROUP BY k.class_id, w.workflow_id HAVING count(*) > k.processes AND max(o.leased_at) > w.updated_at
UNION ALL
	SELECT 'cluster_limit_exceeded', c.name, format('%s running, limit %s', count(*), c.processes)
	FROM siding.resources c JOIN siding.orders o ON o.line_id = c.resource_id
	WHERE c.agent_type = 'cluster' AND o.state = 'running'
	GROUP BY c.resource_id HAVING count(*) > c.processes AND max(o.leased_at) > c.updated_at
UNION ALL
	SELECT 'director_limit_exceeded', d.name, format('%s running, limit %s', count(*), d.processes)
	FROM siding.resources d JOIN siding.resources c ON c.director_id = d.resource_id JOIN siding.orders o ON o.line_id = c.resource_id
	WHERE o.state = 'running'
	GROUP BY d.resource_id HAVING count(*) > d.processes AND max(o.leased_at) > greatest(d.updated_at, max(c.updated_at))
UNION ALL
	SELECT 'candidate_out_of_line', o.id::text, format('line %s, step needs %s', o.line_id, s.line_id)
	FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
	WHERE o.state = 'waiting' AND NOT o.lock_closed AND o.line_id <> s.line_id
UNION ALL
	SELECT 'attempt_out_of_range', o.id::text, format('attempt %s, %s', o.attempt, o.state)
	FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
	WHERE o.attempt < 0 OR o.state = 'running' AND o.attempt = 0
UNION ALL
	-- While both live this needs no clock.
	SELECT 'started_before_predecessor', o.id::text, format('%s, and order %s of its key came earlier', o.state, p.id)
	FROM siding.orders o CROSS JOIN LATERAL (
		SELECT p.id FROM siding.orders p
		WHERE p.key_hash = o.key_hash AND p.key_arrival < o.key_arrival AND p.key_space_id = o.key_space_id AND p.key = o.key
		ORDER BY p.key_arrival LIMIT 1) p
	WHERE o.key_arrival IS NOT NULL AND o.started_at IS NOT NULL AND NOT o.released
UNION ALL
	SELECT 'two_outcomes', o.order_id::text, format('%s outcomes', count(*))
	FROM siding.outcomes o GROUP BY o.order_id HAVING count(*) > 1
UNION ALL
	SELECT 'order_vanished', i.order_id::text, ''
	FROM siding.inputs i
	WHERE NOT EXISTS (SELECT FROM siding.orders o WHERE o.id = i.order_id)
	  AND NOT EXISTS (SELECT FROM siding.outcomes o WHERE o.order_id = i.order_id)
UNION ALL
	SELECT 'lease_used_twice', l.lease_no::text, array_agg(l.id)::text
	FROM (SELECT r.order_id AS id, r.lease_no FROM siding.runs r
	      UNION ALL SELECT o.order_id, o.lease_no FROM siding.outcomes o WHERE o.lease_no IS NOT NULL
	      UNION ALL SELECT o.id, o.lease_no FROM siding.orders o WHERE o.lease_no IS NOT NULL) l
	GROUP BY l.lease_no HAVING count(*) > 1
UNION ALL
	SELECT 'lease_booked_twice', b.lease_no::text, array_agg(b.booking_no)::text
	FROM siding.bookings b WHERE b.lease_no IS NOT NULL GROUP BY b.lease_no HAVING count(*) > 1
UNION ALL
	SELECT 'key_overtaken', k.order_id::text, to_jsonb(k)::text FROM siding_report.key_order k`

// Check reads the whole database in one snapshot and returns what is broken, the
// bookings included: at a sound one nothing. It reads all orders, live and
// ended, and is not for a request that somebody waits for.
func Check(ctx context.Context, d *db.DB) ([]Violation, error) {
	var found []Violation
	err := pgx.BeginTxFunc(ctx, d.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.SQL(moment))
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Violation])
		if err != nil {
			return err
		}
		booked, err := replay(ctx, tx, d)
		found = append(found, booked...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check invariants: %w", err)
	}
	return found, nil
}

// Describe joins violations to a text, the first few of them.
func Describe(found []Violation) string {
	const most = 20
	lines := make([]string, 0, most+1)
	for i, v := range found {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(found)-most))
			break
		}
		lines = append(lines, v.String())
	}
	return strings.Join(lines, "\n")
}
