package pgworld

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/scenario"
)

// newOrder is one element of an add, as the API takes it.
type newOrder struct {
	Workflow    string          `json:"workflow"`
	Ref         string          `json:"ref"`
	Key         *string         `json:"key,omitempty"`
	Queue       string          `json:"queue,omitempty"`
	Due         string          `json:"due,omitempty"`
	WaitLimit   string          `json:"wait_limit,omitempty"`
	Args        json.RawMessage `json:"args,omitempty"`
	Attachments *[]expected     `json:"attachments,omitempty"`
}

// expected is an attachment that an order expects, as the API takes it.
type expected struct {
	Name   string `json:"name"`
	Size   *int64 `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

func expectedOf(a scenario.NewAttachment) expected {
	return expected{Name: a.Name, Size: a.Size, SHA256: a.SHA256}
}

// Add adds all orders by one call.
func (w *World) Add(ctx context.Context, orders []scenario.NewOrder) error {
	call := make([]newOrder, len(orders))
	for i, o := range orders {
		call[i] = newOrder{Workflow: o.Workflow, Ref: o.Order, Key: o.Key, Queue: o.Queue, Args: o.Args}
		if o.DueIn != nil {
			call[i].Due = o.DueIn.String()
		}
		if o.WaitLimit != nil {
			call[i].WaitLimit = o.WaitLimit.String()
		}
		if o.Attachments != nil {
			list := make([]expected, len(o.Attachments))
			for n, a := range o.Attachments {
				list[n] = expectedOf(a)
			}
			call[i].Attachments = &list
		}
	}
	text, err := json.Marshal(call)
	if err != nil {
		return fmt.Errorf("add orders: %w", err)
	}
	_, err = w.orders.Add(ctx, text, person)
	return err
}

// id is the order of a reference.
func (w *World) id(ctx context.Context, order string) (int64, error) {
	return w.orders.ID(ctx, "ref:"+order)
}

// Move gives a waiting order another place in line.
func (w *World) Move(ctx context.Context, move scenario.Move) error {
	id, err := w.id(ctx, move.Order)
	if err != nil {
		return err
	}
	var other int64
	if move.Place == scenario.Before || move.Place == scenario.After {
		if other, err = w.id(ctx, move.Other); err != nil {
			return err
		}
	}
	return w.orders.Move(ctx, id, string(move.Place), other, person, "scenario")
}

// Assign gives the order a queue, or none.
func (w *World) Assign(ctx context.Context, order, queue string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.orders.Assign(ctx, id, queue, person, "scenario")
}

// Release lets the order go ahead of its predecessors of the key.
func (w *World) Release(ctx context.Context, order, reason string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.orders.Release(ctx, id, person, reason)
}

// Resolve decides about an order in attention or dead.
func (w *World) Resolve(ctx context.Context, r scenario.Resolution) error {
	id, err := w.id(ctx, r.Order)
	if err != nil {
		return err
	}
	return w.orders.Resolve(ctx, id, r.Action, person, r.Reason)
}

// Cancel ends the order; what runs of it is stopped at once.
func (w *World) Cancel(ctx context.Context, order, reason string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	if err := w.orders.Cancel(ctx, id, person, reason); err != nil {
		return err
	}
	return w.stop(ctx, id)
}

// Suspend takes the order out of its line; what runs of it is stopped at once.
func (w *World) Suspend(ctx context.Context, order, reason string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	if err := w.orders.Suspend(ctx, id, true, person, reason); err != nil {
		return err
	}
	return w.stop(ctx, id)
}

// stop reports the end of an attempt that was asked to stop, as its agent would
// after the next heartbeat.
func (w *World) stop(ctx context.Context, id int64) error {
	lease, found, err := w.lease(ctx, id)
	if err != nil || !found || !lease.stopping {
		return err
	}
	return w.report(ctx, lease, protocol.Report{LeaseRef: lease.LeaseRef, Outcome: protocol.Stopped})
}

// Resume puts a suspended order back in line.
func (w *World) Resume(ctx context.Context, order, reason string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.orders.Resume(ctx, id, person, reason)
}

// names runs a statement that returns one column of names.
func (w *World) names(ctx context.Context, statement string, args ...any) ([]string, error) {
	rows, err := w.db.Pool.Query(ctx, w.db.SQL(statement), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
