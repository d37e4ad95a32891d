package pgworld

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/scenario"
)

// Started lists all attempts in the order of their leases: those that ended
// their order stand in outcomes, other ended ones in runs.
func (w *World) Started(ctx context.Context) ([]scenario.Start, error) {
	rows, err := w.db.Pool.Query(ctx, w.db.SQL(`
		SELECT a.lease_no, n.ref, coalesce(q.name, '')
		FROM (SELECT lease_no, order_id FROM siding.runs
		      UNION ALL SELECT lease_no, order_id FROM siding.outcomes WHERE lease_no IS NOT NULL
		      UNION ALL SELECT lease_no, id FROM siding.orders WHERE state = 'running') a
		JOIN siding.order_references n ON n.order_id = a.order_id
		LEFT JOIN siding.orders o ON o.id = a.order_id
		LEFT JOIN siding.outcomes x ON x.order_id = a.order_id
		LEFT JOIN siding.queues q ON q.queue_id = coalesce(o.queue_id, x.queue_id)
		ORDER BY a.lease_no`))
	if err != nil {
		return nil, fmt.Errorf("list starts: %w", err)
	}
	starts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s scenario.Start, err error) {
		var lease int64
		err = row.Scan(&lease, &s.Order, &s.Queue)
		if then, ok := w.queueAt[lease]; ok {
			s.Queue = then
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list starts: %w", err)
	}
	return starts, nil
}

// Granted lists all grants of a lock, from the log of events.
func (w *World) Granted(ctx context.Context, lock string) ([]scenario.Start, error) {
	if _, err := w.resource(ctx, scenario.KindLock, lock); err != nil {
		return nil, err
	}
	rows, err := w.db.Pool.Query(ctx, w.db.SQL(`
		SELECT n.ref, coalesce(e.detail ->> 'queue', '')
		FROM siding.events e JOIN siding.order_references n ON n.order_id = e.order_id
		WHERE e.kind = 'lock_granted' AND e.subject = $1 ORDER BY e.event_no`), lock)
	if err != nil {
		return nil, fmt.Errorf("list grants of %s: %w", lock, err)
	}
	grants, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s scenario.Start, err error) {
		return s, row.Scan(&s.Order, &s.Queue)
	})
	if err != nil {
		return nil, fmt.Errorf("list grants of %s: %w", lock, err)
	}
	return grants, nil
}

// State is where an order stands, in one word.
func (w *World) State(ctx context.Context, order string) (scenario.State, error) {
	id, err := w.id(ctx, order)
	if err != nil {
		return scenario.State{}, err
	}
	var state scenario.State
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT siding.state_word(o), coalesce(a.reason, '')
		FROM siding.orders o LEFT JOIN siding.attentions a ON a.order_id = o.id AND o.state = 'attention' WHERE o.id = $1
		UNION ALL SELECT x.state::text, '' FROM siding.outcomes x WHERE x.order_id = $1`), id).Scan(&state.Word, &state.Reason)
	if err != nil {
		return scenario.State{}, fmt.Errorf("state of %s: %w", order, err)
	}
	if state.Word == "paused" {
		// A file has no word for it: there the first of due, attachment, key and
		// lock gives the word, and with none of them it is ready, as it is where
		// the whole queue or line is paused.
		state.Word = "ready"
	}
	return state, nil
}

// Why lists the codes of the order's obstacles; an ended order has none.
func (w *World) Why(ctx context.Context, order string) ([]string, error) {
	id, err := w.id(ctx, order)
	if err != nil {
		return nil, err
	}
	answer, err := w.why.Of(ctx, id)
	if refusal, ok := db.AsRefusal(err); ok && refusal.Code == "order_final" {
		return []string{}, nil
	}
	if err != nil {
		return nil, err
	}
	return answer.Codes(), nil
}

// List returns a list of a queue, or of the unassigned orders, page by page.
func (w *World) List(ctx context.Context, name string, list scenario.ListName) ([]string, error) {
	orders := []string{}
	for cursor := ""; ; {
		page, err := w.queues.List(ctx, queueName(name), string(list), cursor, queue.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, entry := range page.Orders {
			orders = append(orders, entry.Ref)
		}
		if page.Next == "" {
			return orders, nil
		}
		cursor = page.Next
	}
}

func queueName(name string) string {
	if name == "" {
		return queue.None
	}
	return name
}

// InQueue lists the queue's candidates within its capacity.
func (w *World) InQueue(ctx context.Context, name string) ([]string, error) {
	places, err := w.queues.InQueue(ctx, queueName(name), queue.MaxPage)
	if err != nil {
		return nil, err
	}
	return w.refs(ctx, places.InQueue)
}

// Overflow lists those behind it.
func (w *World) Overflow(ctx context.Context, name string) ([]string, error) {
	places, err := w.queues.InQueue(ctx, queueName(name), queue.MaxPage)
	if err != nil {
		return nil, err
	}
	return w.refs(ctx, places.Overflow)
}

func (w *World) refs(ctx context.Context, places []queue.Place) ([]string, error) {
	ids := make([]int64, len(places))
	for i, p := range places {
		ids[i] = p.Order
	}
	return w.names(ctx, `
		SELECT n.ref FROM unnest($1::bigint[]) WITH ORDINALITY AS p (id, ordinal) JOIN siding.order_references n ON n.order_id = p.id
		ORDER BY p.ordinal`, ids)
}

// Line is the mode of the line of an agent or a cluster.
func (w *World) Line(ctx context.Context, agent string) (scenario.LineMode, error) {
	id, err := w.resource(ctx, scenario.KindAgent, agent)
	if err != nil {
		return scenario.LineMode{}, err
	}
	var mode scenario.LineMode
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`SELECT mode, coalesce(reason, '') FROM siding.lines WHERE line_id = $1`), id).Scan(&mode.Mode, &mode.Reason)
	if err != nil {
		return scenario.LineMode{}, fmt.Errorf("line of %s: %w", agent, err)
	}
	return mode, nil
}

// HeldUnits is the sum of the lock's grants; an exclusive one holds all units.
func (w *World) HeldUnits(ctx context.Context, lock string) (int64, error) {
	id, err := w.resource(ctx, scenario.KindLock, lock)
	if err != nil {
		return 0, err
	}
	var held int64
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT coalesce(sum(coalesce(g.weight, r.capacity)), 0) FROM siding.grants g JOIN siding.resources r ON r.resource_id = g.lock_id
		WHERE g.lock_id = $1`), id).Scan(&held)
	if err != nil {
		return 0, fmt.Errorf("held units of %s: %w", lock, err)
	}
	return held, nil
}

// Running lists the running orders, first started first.
func (w *World) Running(ctx context.Context) ([]string, error) {
	running, err := w.names(ctx, `
		SELECT n.ref FROM siding.orders o JOIN siding.order_references n ON n.order_id = o.id
		WHERE o.state = 'running' ORDER BY o.lease_no`)
	if err != nil {
		return nil, fmt.Errorf("list running orders: %w", err)
	}
	return running, nil
}

// Attempts counts the attempts of the order's current step in its round.
func (w *World) Attempts(ctx context.Context, order string) (int, error) {
	id, err := w.id(ctx, order)
	if err != nil {
		return 0, err
	}
	var attempts int
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT attempt FROM siding.orders WHERE id = $1 UNION ALL SELECT attempt FROM siding.outcomes WHERE order_id = $1`), id).Scan(&attempts)
	if err != nil {
		return 0, fmt.Errorf("attempts of %s: %w", order, err)
	}
	return attempts, nil
}

// ReadyWait is how long the order waited after it became ready, as it recorded.
func (w *World) ReadyWait(ctx context.Context, order string) (time.Duration, bool, error) {
	id, err := w.id(ctx, order)
	if err != nil {
		return 0, false, err
	}
	var ready, started *time.Time
	err = w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT ready_at, started_at FROM siding.orders WHERE id = $1
		UNION ALL SELECT ready_at, started_at FROM siding.outcomes WHERE order_id = $1`), id).Scan(&ready, &started)
	if err != nil {
		return 0, false, fmt.Errorf("ready wait of %s: %w", order, err)
	}
	if started == nil {
		return 0, false, nil
	}
	if ready == nil {
		return 0, false, errors.New("order " + order + " started and never was ready")
	}
	return started.Sub(*ready), true, nil
}

// Forecast returns the next picks of a lock or an agent.
func (w *World) Forecast(ctx context.Context, resource scenario.Target, limit int) ([]scenario.Start, error) {
	picks, err := w.forecasts.Of(ctx, string(resource.Kind), resource.Name, limit)
	if err != nil {
		return nil, err
	}
	starts := make([]scenario.Start, len(picks))
	for i, p := range picks {
		starts[i] = scenario.Start{Order: p.Ref, Queue: p.Queue}
	}
	return starts, nil
}
