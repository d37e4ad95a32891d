package order

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Moment is one line of an order's history.
type Moment struct {
	At time.Time `json:"at"`
	// Kind is a stable code: added, attempt, ended, or that of an event.
	Kind    string `json:"kind" doc:"added, attempt, ended, or the kind of an event"`
	Subject string `json:"subject,omitempty" doc:"What else it is about, for example an attachment or a queue"`
	Person  string `json:"person,omitempty" doc:"Who decided"`
	Reason  string `json:"reason,omitempty"`
	// Detail holds numbers and names. Of an attempt: lease, attempt, step, job,
	// agent, session, ended_at, outcome, exit_code, message.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// maxMoments bounds a history; the first ones are left out of a longer one.
const maxMoments = 10_000

// History returns what happened to an order, the oldest first: its adding, the
// events, every attempt (at its start; the running one too) and its end. It
// refuses with order_not_found.
func (o *Orders) History(ctx context.Context, id int64) ([]Moment, error) {
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(readHistory), id, maxMoments)
	if err != nil {
		return nil, fmt.Errorf("history of order %d: %w", id, err)
	}
	moments, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Moment, error) {
		var m Moment
		var detail []byte
		err := row.Scan(&m.At, &m.Kind, &m.Subject, &m.Person, &m.Reason, &detail)
		m.Detail = detail
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("history of order %d: %w", id, err)
	}
	if len(moments) == 0 {
		return nil, notFound(id)
	}
	return moments, nil
}

// The last attempt of an ended order stands in outcomes, the running one in
// orders, the others in runs.
const readHistory = `
	WITH attempts AS (
		SELECT started_at, ended_at, lease_no, session_id, step_id, agent_id, attempt, outcome, exit_code, message
		FROM siding.runs WHERE order_id = $1
		UNION ALL
		SELECT leased_at, ended_at, lease_no, session_id, step_id, agent_id, attempt,
		       CASE state WHEN 'finished' THEN 'succeeded' ELSE 'stopped' END, exit_code, message
		FROM siding.outcomes WHERE order_id = $1 AND lease_no IS NOT NULL
		UNION ALL
		SELECT leased_at, NULL, lease_no, session_id, step_id, agent_id, attempt, NULL, NULL, NULL
		FROM siding.orders WHERE id = $1 AND state = 'running'
	), moments AS (
		SELECT i.added_at AS at, 0 AS rank, 0::bigint AS no, 'added' AS kind, NULL AS subject, i.added_by AS person, NULL AS reason,
		       jsonb_strip_nulls(jsonb_build_object('ref', i.ref, 'wait_limit', i.wait_limit::text)) AS detail
		FROM siding.inputs i WHERE i.order_id = $1
		UNION ALL
		SELECT e.at, 1, e.event_no, e.kind, e.subject, e.person, e.reason, e.detail
		FROM siding.events e WHERE e.order_id = $1
		UNION ALL
		SELECT a.started_at, 2, a.lease_no, 'attempt', s.job, NULL, NULL,
		       jsonb_strip_nulls(jsonb_build_object(
		           'lease', a.lease_no, 'attempt', a.attempt, 'step', s.step_path, 'job', s.job, 'agent', r.name, 'session', a.session_id,
		           'ended_at', a.ended_at, 'outcome', a.outcome, 'exit_code', a.exit_code, 'message', a.message))
		FROM attempts a JOIN siding.steps s ON s.step_id = a.step_id LEFT JOIN siding.resources r ON r.resource_id = a.agent_id
		UNION ALL
		SELECT ended_at, 3, 0, 'ended', NULL, NULL, NULL, jsonb_build_object('state', state)
		FROM siding.outcomes WHERE order_id = $1
	), newest AS (
		SELECT * FROM moments ORDER BY at DESC, rank DESC, no DESC LIMIT $2
	)
	SELECT at, kind, coalesce(subject, ''), coalesce(person, ''), coalesce(reason, ''), nullif(detail, '{}')
	FROM newest ORDER BY at, rank, no`
