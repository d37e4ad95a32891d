// Package order adds orders, reads them, and carries out what people decide
// about them. The rules stand in its routines (sql/), which application
// databases call too; the Go side passes values and wakes who waits.
package order

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Orders is the room's entrance.
type Orders struct {
	db    *db.DB
	waker db.Waker
}

// New returns the orders of a schema. Wake-ups go to waker.
func New(d *db.DB, waker db.Waker) *Orders {
	return &Orders{db: d, waker: waker}
}

// Person is who decides: the name of a token, with the name of somebody it acts
// for, if given.
type Person struct {
	Name       string
	OnBehalfOf string
}

// String is the person as recorded.
func (p Person) String() string {
	if p.OnBehalfOf == "" {
		return p.Name
	}
	return p.Name + " for " + p.OnBehalfOf
}

// ID resolves what a person names an order by: its id, or ref:REFERENCE. It
// refuses with order_not_found.
func (o *Orders) ID(ctx context.Context, name string) (int64, error) {
	var id int64
	err := o.db.Pool.QueryRow(ctx, o.db.SQL(`SELECT siding.order_named($1)`), name).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("find order %s: %w", name, db.Wrap(err))
	}
	return id, nil
}

// Added is one element of an Add.
type Added struct {
	ID int64 `json:"id"`
	// Existing is true when an order with the same reference and content was
	// there before.
	Existing bool `json:"existing"`
}

// Add adds orders by one call, all or none: a JSON array of objects as
// siding.add_orders takes them (docs/api.md, Orders). Their positions follow
// the order of the array. Results are in the same order.
//
// Refusals: invalid_order, unknown_workflow, unknown_queue, key_required,
// key_not_allowed, invalid_key, invalid_attachment, reference_conflict,
// too_many_orders.
func (o *Orders) Add(ctx context.Context, orders json.RawMessage, person Person) ([]Added, error) {
	var added []Added
	var lines []int32
	var intake bool
	err := o.db.Tx(ctx, func(tx pgx.Tx) error {
		added, lines, intake = nil, nil, false
		rows, err := tx.Query(ctx, o.db.SQL(`SELECT ordinal, order_id, existing, line_id, needs_intake FROM siding.add_orders($1::jsonb, $2, false)`),
			string(orders), person.String())
		if err != nil {
			return err
		}
		var (
			ordinal, line int32
			id            int64
			existing, gap bool
		)
		seen := map[int32]bool{}
		_, err = pgx.ForEachRow(rows, []any{&ordinal, &id, &existing, &line, &gap}, func() error {
			for len(added) < int(ordinal) {
				added = append(added, Added{})
			}
			added[ordinal-1] = Added{ID: id, Existing: existing}
			intake = intake || gap
			if !gap && !seen[line] {
				seen[line] = true
				lines = append(lines, line)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add orders: %w", err)
	}
	if intake {
		o.waker.WakeIntake()
	}
	o.waker.Wake(lines...)
	return added, nil
}

// decide runs one decision in a transaction and wakes the lines it returns.
func (o *Orders) decide(ctx context.Context, what, statement string, args ...any) error {
	var lines []int32
	err := o.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, o.db.SQL(statement), args...).Scan(&lines)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	o.waker.Wake(lines...)
	return nil
}

// Cancel ends an order. One that runs is stopped first and is cancelled when
// its agent reports the end or is lost.
func (o *Orders) Cancel(ctx context.Context, id int64, person Person, reason string) error {
	return o.decide(ctx, "cancel order", `SELECT siding.cancel_order_now($1, $2, $3)`, id, person.String(), reason)
}

// Suspend takes a waiting order out of its line; a running one after its step,
// or at once with kill. The place is kept.
func (o *Orders) Suspend(ctx context.Context, id int64, kill bool, person Person, reason string) error {
	return o.decide(ctx, "suspend order", `SELECT siding.suspend_order($1, $2, $3, $4)`, id, kill, person.String(), reason)
}

// Resume puts a suspended order back in line.
func (o *Orders) Resume(ctx context.Context, id int64, person Person, reason string) error {
	return o.decide(ctx, "resume order", `SELECT siding.resume_order($1, $2, $3)`, id, person.String(), reason)
}

// Resolve decides about an order in attention (resume, skip, cancel) or dead
// (retry, skip, cancel). It needs a reason.
func (o *Orders) Resolve(ctx context.Context, id int64, action string, person Person, reason string) error {
	return o.decide(ctx, "resolve order", `SELECT siding.resolve_order($1, $2, $3, $4)`, id, action, person.String(), reason)
}

// Release lets an order go ahead of its predecessors in its key that exist now.
// It needs a reason, is recorded for ever and shown.
func (o *Orders) Release(ctx context.Context, id int64, person Person, reason string) error {
	return o.decide(ctx, "release order", `SELECT siding.release_order_now($1, $2, $3)`, id, person.String(), reason)
}

// Assign assigns a queue, or none (the empty string).
func (o *Orders) Assign(ctx context.Context, id int64, queue string, person Person, reason string) error {
	var name *string
	if queue != "" {
		name = &queue
	}
	return o.decide(ctx, "assign queue", `SELECT siding.assign_order($1, $2, $3, $4)`, id, name, person.String(), reason)
}

// Places to move an order to.
const (
	First  = "first"
	Last   = "last"
	Before = "before"
	After  = "after"
)

// Move moves a waiting order within its queue. Other is the order that Before
// and After mean, else 0.
func (o *Orders) Move(ctx context.Context, id int64, to string, other int64, person Person, reason string) error {
	return o.decide(ctx, "move order", `SELECT siding.move_order($1, $2, $3, $4, $5)`, id, to, other, person.String(), reason)
}

// SetLineMode sets how the line of an agent treats blocked orders: pass,
// strict, or auto (the facts decide). It needs a reason.
func (o *Orders) SetLineMode(ctx context.Context, agent, mode string, person Person, reason string) error {
	return o.decide(ctx, "set line mode", `SELECT siding.set_line_mode($1, $2, $3, $4)`, agent, mode, person.String(), reason)
}

// Pause keeps the orders of a queue, agent, lock or workflow from starting,
// until a time or (zero) until Unpause. It needs a reason.
func (o *Orders) Pause(ctx context.Context, kind, name string, until time.Time, person Person, reason string) error {
	var end *time.Time
	if !until.IsZero() {
		end = &until
	}
	return o.decide(ctx, "pause", `SELECT '{}'::int[] FROM siding.pause($1, $2, $3, $4, $5)`, kind, name, end, person.String(), reason)
}

// Unpause ends a pause.
func (o *Orders) Unpause(ctx context.Context, kind, name string, person Person, reason string) error {
	return o.decide(ctx, "unpause", `SELECT siding.unpause($1, $2, $3, $4)`, kind, name, person.String(), reason)
}
