package order

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Order is one order, live or ended, with what a person wants to know about it.
// Times are null (nil) for what hasn't happened.
type Order struct {
	ID       int64  `json:"id" doc:"Id of the order"`
	Ref      string `json:"ref,omitempty" doc:"Reference given by the user"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version" doc:"Version of the workflow that the order keeps"`
	State    string `json:"state" enum:"waiting,running,suspended,attention,dead,finished,cancelled"`
	// Word is the state in one word: for a waiting order what it waits for.
	Word string `json:"word" doc:"The state in one word; of a waiting order: arriving, scheduled, blocked, held, locked_out, paused or ready"`
	// Stopping is what a person asked of a running order: cancel, suspend (after
	// this step), kill (suspend now).
	Stopping string `json:"stopping,omitempty" doc:"What was asked of a running order: cancel, suspend or kill"`
	// Gates are the closed gates, of a waiting order.
	Gates       []string `json:"gates" doc:"Closed gates: intake, due, attachment, key, lock, pause"`
	StepPath    string   `json:"step_path"`
	Job         string   `json:"job"`
	Attempt     int      `json:"attempt" doc:"Attempts of this step in this round, the running one included"`
	MaxAttempts int      `json:"max_attempts"`
	Key         string   `json:"key,omitempty"`
	Queue       string   `json:"queue,omitempty"`
	// LineKind and Line name the resource whose line the order is in.
	LineKind string `json:"line_kind" doc:"agent or lock"`
	Line     string `json:"line" doc:"Resource whose line it is in; of a running order, where it was claimed from"`
	Agent    string `json:"agent,omitempty" doc:"Agent that runs it, or ran the last attempt of an ended one"`
	Session  int64  `json:"session,omitempty"`
	Lease    int64  `json:"lease,omitempty"`
	Position int64  `json:"position" doc:"Place in every line; lower goes first"`
	Released bool   `json:"released,omitempty" doc:"May go ahead of its predecessors by a recorded decision"`

	AddedBy   string     `json:"added_by,omitempty"`
	AddedAt   time.Time  `json:"added_at"`
	DueAt     *time.Time `json:"due_at,omitempty" doc:"Due time, or time of the next attempt"`
	ReadyAt   *time.Time `json:"ready_at,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	LeasedAt  *time.Time `json:"leased_at,omitempty" doc:"Start of the running or last attempt"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// WaitDeadline is when waiting for attachments becomes attention.
	WaitDeadline *time.Time `json:"wait_deadline,omitempty"`
	// ReadyWaitMillis is how long it waited between ready and started.
	ReadyWaitMillis *int64 `json:"ready_wait_ms,omitempty" doc:"Milliseconds between ready and started"`

	// Attention says why the order is in attention, dead or suspended.
	Attention *Attention `json:"attention,omitempty"`
	ExitCode  *int       `json:"exit_code,omitempty" doc:"Exit code of the last attempt of an ended order"`
	Message   string     `json:"message,omitempty"`

	// Args, Attachments and Holds are given for one order, not in lists.
	Args        json.RawMessage   `json:"args,omitempty"`
	Attachments []AttachmentState `json:"attachments,omitempty"`
	Holds       []Hold            `json:"holds,omitempty" doc:"Locks it holds"`
}

// Attention is why an order is in attention, dead or suspended.
type Attention struct {
	Reason string          `json:"reason" doc:"Stable code, for example attachment_wait_limit"`
	Detail json.RawMessage `json:"detail,omitempty"`
	Since  time.Time       `json:"since"`
}

// AttachmentState is the summary of one attachment.
type AttachmentState struct {
	Name    string `json:"name"`
	State   string `json:"state" enum:"pending,uploading,complete,failed,unknown,discarded"`
	Size    *int64 `json:"size,omitempty" doc:"Bytes received"`
	Problem string `json:"problem,omitempty"`
	Late    bool   `json:"late,omitempty" doc:"Became complete when the order was already in attention"`
}

// Hold is a lock that an order holds.
type Hold struct {
	Lock      string    `json:"lock"`
	Weight    *int      `json:"weight,omitempty" doc:"Units held shared; absent: exclusive"`
	GrantedAt time.Time `json:"granted_at"`
}

// Get reads one order. It refuses with order_not_found.
func (o *Orders) Get(ctx context.Context, id int64) (Order, error) {
	found, err := o.read(ctx, []int64{id}, true)
	if err != nil {
		return Order{}, fmt.Errorf("read order %d: %w", id, err)
	}
	if len(found) == 0 {
		return Order{}, notFound(id)
	}
	return found[0], nil
}

// Many reads orders by id, in the order given and without args, attachments and
// holds. Ids of no order are left out.
func (o *Orders) Many(ctx context.Context, ids []int64) ([]Order, error) {
	if len(ids) == 0 {
		return []Order{}, nil
	}
	found, err := o.read(ctx, ids, false)
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	return found, nil
}

func notFound(id int64) error {
	r := db.Refuse("order_not_found", 404, "there is no order %d", id)
	r.Hint = "Give its id, or ref:REFERENCE."
	return r
}

// readOrders reads live and ended orders by one statement, so that one that ends
// meanwhile is seen exactly once. $2: with args, attachments and holds.
const readOrders = `
	WITH o AS (
		SELECT id, position, added_at, ready_at, started_at, due_at, wait_deadline, leased_at, NULL::timestamptz AS ended_at,
		       session_id, lease_no, step_id, line_id, queue_id, agent_id, state, stop, attempt,
		       intake_closed, due_closed, attachment_closed, key_closed, lock_closed, pause_closed, candidate,
		       key, released, has_attachments, NULL::int AS exit_code, NULL::text AS message
		FROM siding.orders WHERE id = ANY ($1)
		UNION ALL
		SELECT order_id, position, added_at, ready_at, started_at, NULL, NULL, leased_at, ended_at,
		       session_id, lease_no, step_id, line_id, queue_id, agent_id, state, NULL, attempt,
		       false, false, false, false, false, false, false,
		       key, released, has_attachments, exit_code, message
		FROM siding.outcomes WHERE order_id = ANY ($1)
	)
	SELECT o.id, coalesce(i.ref, ''), w.name, v.version, o.state::text, coalesce(o.stop::text, ''),
	       o.state = 'waiting' AND o.intake_closed, o.state = 'waiting' AND o.due_closed, o.state = 'waiting' AND o.attachment_closed,
	       o.state = 'waiting' AND o.key_closed, o.state = 'waiting' AND o.lock_closed,
	       o.state = 'waiting' AND (o.pause_closed OR EXISTS (
	           SELECT FROM siding.pauses p
	           WHERE p.kind = 'queue' AND p.subject_id = o.queue_id OR p.kind = l.kind AND p.subject_id = o.line_id
	              OR p.kind = 'workflow' AND p.subject_id = w.workflow_id)),
	       s.step_path, s.job, o.attempt, s.max_attempts, coalesce(o.key, ''), coalesce(q.name, ''), l.kind, l.name,
	       coalesce(a.name, ''), coalesce(o.session_id, 0), coalesce(o.lease_no, 0), o.position, o.released,
	       coalesce(i.added_by, ''), o.added_at, o.due_at,
	       CASE WHEN o.started_at IS NOT NULL OR o.candidate AND NOT o.lock_closed THEN o.ready_at END,
	       o.started_at, o.leased_at, o.ended_at,
	       CASE WHEN o.state = 'waiting' AND o.attachment_closed THEN o.wait_deadline END,
	       (extract(epoch FROM o.started_at - o.ready_at) * 1000)::bigint,
	       t.reason, t.detail, t.since, o.exit_code, coalesce(o.message, ''),
	       CASE WHEN $2 THEN i.args END,
	       CASE WHEN $2 AND o.has_attachments THEN (
	           SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
	                      'name', f.name, 'state', f.state, 'size', f.size, 'problem', f.problem, 'late', f.late)) ORDER BY f.name)
	           FROM siding.attachments f
	           WHERE f.order_id = o.id) END,
	       CASE WHEN $2 AND o.ended_at IS NULL THEN (
	           SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('lock', k.name, 'weight', g.weight, 'granted_at', g.granted_at)) ORDER BY k.name)
	           FROM siding.grants g JOIN siding.resources k ON k.resource_id = g.lock_id WHERE g.order_id = o.id) END
	FROM o
	JOIN siding.steps s ON s.step_id = o.step_id
	JOIN siding.workflow_versions v ON v.version_id = s.version_id
	JOIN siding.workflows w ON w.workflow_id = v.workflow_id
	JOIN siding.resources l ON l.resource_id = o.line_id
	LEFT JOIN siding.inputs i ON i.order_id = o.id AND i.added_at = o.added_at
	LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
	LEFT JOIN siding.resources a ON a.resource_id = o.agent_id
	LEFT JOIN siding.attentions t ON t.order_id = o.id
	ORDER BY array_position($1, o.id)`

func (o *Orders) read(ctx context.Context, ids []int64, details bool) ([]Order, error) {
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(readOrders), ids, details)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanOrder)
}

func scanOrder(row pgx.CollectableRow) (Order, error) {
	var (
		x                                     Order
		intake, due, attachment               bool
		key, lock, pause                      bool
		reason                                *string
		detail, args, attachments, heldByThis []byte
		since                                 *time.Time
	)
	err := row.Scan(&x.ID, &x.Ref, &x.Workflow, &x.Version, &x.State, &x.Stopping,
		&intake, &due, &attachment, &key, &lock, &pause,
		&x.StepPath, &x.Job, &x.Attempt, &x.MaxAttempts, &x.Key, &x.Queue, &x.LineKind, &x.Line,
		&x.Agent, &x.Session, &x.Lease, &x.Position, &x.Released,
		&x.AddedBy, &x.AddedAt, &x.DueAt, &x.ReadyAt, &x.StartedAt, &x.LeasedAt, &x.EndedAt, &x.WaitDeadline,
		&x.ReadyWaitMillis, &reason, &detail, &since, &x.ExitCode, &x.Message, &args, &attachments, &heldByThis)
	if err != nil {
		return Order{}, err
	}
	x.Gates, x.Word = gates(x.State, intake, due, attachment, key, lock, pause)
	if reason != nil && since != nil {
		x.Attention = &Attention{Reason: *reason, Detail: detail, Since: *since}
	}
	x.Args = args
	if err := decode(attachments, &x.Attachments); err != nil {
		return Order{}, err
	}
	return x, decode(heldByThis, &x.Holds)
}

func decode(text []byte, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// gates names the closed gates and gives the state in one word: scheduled before
// blocked before held before locked_out (docs/concepts.md, States and gates). An
// order that only has no place yet is arriving; one that only a person keeps is
// paused.
func gates(state string, intake, due, attachment, key, lock, pause bool) ([]string, string) {
	closed, word := []string{}, state
	if state == "waiting" {
		word = "ready"
	}
	// From the last to the first that gives the word.
	for _, gate := range []struct {
		closed     bool
		name, word string
	}{
		{intake, "intake", "arriving"},
		{pause, "pause", "paused"},
		{lock, "lock", "locked_out"},
		{key, "key", "held"},
		{attachment, "attachment", "blocked"},
		{due, "due", "scheduled"},
	} {
		if gate.closed {
			closed, word = append(closed, gate.name), gate.word
		}
	}
	return closed, word
}
