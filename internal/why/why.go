// Package why answers why an order waits: which obstacles keep it from its
// next resource, and whose turn it is. The answer comes from the facts and the
// rule that decide (sql/), computed when asked and never stored.
package why

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Class says what has to happen before an obstacle is gone.
type Class string

// The classes of obstacles.
const (
	// Later ends by itself: by time, other orders, or an upload.
	Later Class = "later"
	// NeedsYou ends when a person does something.
	NeedsYou Class = "needs_you"
	// Never doesn't end as things are defined.
	Never Class = "never"
	// Unknown can't be told: a fact can't be read.
	Unknown Class = "unknown"
)

// The codes of obstacles.
const (
	Intake            = "intake"
	Due               = "due"
	Retry             = "retry"
	AttachmentPending = "attachment_pending"
	AttachmentUnknown = "attachment_unknown"
	KeyHeld           = "key_held"
	KeyRunning        = "key_running"
	LockBusy          = "lock_busy"
	LockTurn          = "lock_turn"
	QueueOverflow     = "queue_overflow"
	QueueTurn         = "queue_turn"
	Behind            = "behind"
	LineStrict        = "line_strict"
	ProcessLimit      = "process_limit"
	JobLimit          = "job_limit"
	NoAgent           = "no_agent"
	ExceedsCapacity   = "exceeds_capacity"
	Paused            = "paused"
	Suspended         = "suspended"
	Attention         = "attention"
	Dead              = "dead"
)

// Obstacle is one thing that keeps an order from its next resource.
type Obstacle struct {
	Class Class  `json:"class" enum:"later,needs_you,never,unknown"`
	Code  string `json:"code"`
	// Subject is what it is about: an attachment, an order, a lock ...
	Subject string `json:"subject,omitempty"`
	// Numbers is a JSON object; what it has depends on the code (docs/api.md,
	// Why).
	Numbers json.RawMessage `json:"numbers"`
	// Since is nil where nobody knows.
	Since *time.Time `json:"since,omitempty"`
	// EndsBy says what would end it, for a person.
	EndsBy string `json:"ends_by"`
}

// Answer says why an order waits.
type Answer struct {
	Order int64 `json:"order"`
	// State is the one word for its state.
	State string `json:"state"`
	// Next is true when the order is picked as soon as somebody asks. Then there
	// are no obstacles; a running order has none either.
	Next      bool       `json:"next"`
	Obstacles []Obstacle `json:"obstacles"`
}

// Codes lists the codes of the obstacles, each once, in the order of the
// answer.
func (a Answer) Codes() []string {
	codes := []string{}
	for i, o := range a.Obstacles {
		if i == 0 || o.Code != a.Obstacles[i-1].Code {
			codes = append(codes, o.Code)
		}
	}
	return codes
}

// Reasons is the room's entrance.
type Reasons struct {
	db *db.DB
}

// New returns the reasons of a schema.
func New(d *db.DB) *Reasons { return &Reasons{db: d} }

// Of answers for one live order, from one snapshot. Refusals: order_final,
// order_not_found.
func (r *Reasons) Of(ctx context.Context, order int64) (Answer, error) {
	answer := Answer{Order: order, Obstacles: []Obstacle{}}
	err := pgx.BeginTxFunc(ctx, r.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, r.db.SQL(`
			SELECT state, next, class, code, coalesce(subject, ''), numbers, since, coalesce(ends_by, '') FROM siding.why($1)`), order)
		if err != nil {
			return err
		}
		var (
			o           Obstacle
			class, code *string
			numbers     []byte
		)
		_, err = pgx.ForEachRow(rows, []any{&answer.State, &answer.Next, &class, &code, &o.Subject, &numbers, &o.Since, &o.EndsBy}, func() error {
			if code != nil {
				o.Class, o.Code, o.Numbers = Class(*class), *code, json.RawMessage(append([]byte{}, numbers...))
				answer.Obstacles = append(answer.Obstacles, o)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return Answer{}, fmt.Errorf("why order %d waits: %w", order, db.Wrap(err))
	}
	return answer, nil
}
