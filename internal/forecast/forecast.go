// Package forecast tells in which order a lock or an agent would take the
// orders that wait for it: the next picks, if each were to end at once and
// nothing else happened (docs/concepts.md, Who goes next).
//
// A forecast is made by the real picks, bookings and ends in a transaction that
// is rolled back. While it is made, which takes about a millisecond for each
// pick, the resource gives nothing to anybody else.
package forecast

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// MaxPicks bounds one forecast.
const MaxPicks = 1000

// Pick is one pick of a resource.
type Pick struct {
	Order int64 `json:"order"`
	// Ref is the order's reference, empty if it has none.
	Ref string `json:"ref,omitempty"`
	// Queue is the queue the order is assigned to, empty for none.
	Queue string `json:"queue,omitempty"`
}

// Forecasts is the room's entrance.
type Forecasts struct{ db *db.DB }

// New returns the forecasts of a schema.
func New(d *db.DB) *Forecasts { return &Forecasts{db: d} }

// errRollBack ends the transaction of a forecast.
var errRollBack = errors.New("a forecast is rolled back")

// Of returns the next picks of a lock or an agent (also a cluster), at most
// limit of them and never more than MaxPicks. Kind is lock or agent. An order
// with several steps at the resource is there several times.
//
// Refusals: unknown_lock, unknown_agent.
func (f *Forecasts) Of(ctx context.Context, kind, name string, limit int) ([]Pick, error) {
	picks := []Pick{}
	err := f.db.Tx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, f.db.SQL(`
			SELECT f.order_id, coalesce(n.ref, ''), coalesce(q.name, '')
			FROM siding.forecast(siding.subject_named($1, $2), $3) f
			LEFT JOIN siding.order_references n ON n.order_id = f.order_id
			LEFT JOIN siding.queues q ON q.queue_id = f.queue_id
			ORDER BY f.ordinal`), kind, name, min(limit, MaxPicks))
		if err != nil {
			return err
		}
		picks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pick, err error) {
			return p, row.Scan(&p.Order, &p.Ref, &p.Queue)
		})
		if err != nil {
			return err
		}
		return errRollBack
	})
	if err != nil && !errors.Is(err, errRollBack) {
		return nil, fmt.Errorf("forecast of %s %s: %w", kind, name, err)
	}
	return picks, nil
}
