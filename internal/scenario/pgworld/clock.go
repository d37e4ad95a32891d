package pgworld

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// maxPasses bounds how often Settle goes on because something has changed: what
// changes for ever must be seen, not waited for.
const maxPasses = 20

func (w *World) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := w.db.Pool.QueryRow(ctx, w.db.SQL(`SELECT siding.clock()`)).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the clock: %w", err)
	}
	return now.UTC(), nil
}

// Advance moves the clock; every agent that isn't lost sends a heartbeat before
// anything is recovered.
func (w *World) Advance(ctx context.Context, by time.Duration) error {
	before, err := w.now(ctx)
	if err != nil {
		return err
	}
	now := before.Add(by)
	if _, err := w.db.Pool.Exec(ctx, w.db.SQL(`SELECT siding.set_clock($1)`), now); err != nil {
		return fmt.Errorf("move the clock: %w", err)
	}
	// Of a long advance, for what happens at its end; the keeper makes them long
	// before in production.
	if before.Month() != now.Month() || before.Year() != now.Year() {
		if _, err := w.db.Pool.Exec(ctx, w.db.SQL(`SELECT siding.ensure_partitions()`)); err != nil {
			return fmt.Errorf("make partitions: %w", err)
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(w.agents)) {
		if w.agents[agent].lost {
			continue
		}
		if err := w.heartbeat(ctx, agent); err != nil {
			return err
		}
	}
	return w.Settle(ctx)
}

// Settle lets intake and sweepers work until they find nothing more to do. Where
// nothing has changed since it last did, there is nothing.
func (w *World) Settle(ctx context.Context) error {
	before, err := w.mark(ctx)
	if err != nil {
		return err
	}
	if before == w.settled {
		return nil
	}
	for range maxPasses {
		for {
			placed, err := w.dispatch.Intake(ctx)
			if err != nil {
				return err
			}
			if placed == 0 {
				break
			}
		}
		if err := w.keeper.Sweep(ctx); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		after, err := w.mark(ctx)
		if err != nil {
			return err
		}
		if after == before {
			w.settled = after
			return nil
		}
		before = after
	}
	return fmt.Errorf("sweepers still find something to do after %d passes", maxPasses)
}

// marked tables are those that intake and sweepers go by, besides lines.
var marked = []string{"orders", "grants", "pauses", "attachments", "stores", "resources", "queues", "sessions"}

// mark changes with the clock and with every change in marked tables: a row
// comes, goes, or is written by a later transaction.
func (w *World) mark(ctx context.Context) (string, error) {
	if w.marking == "" {
		// Of lines all but the floors, which the sweepers raise for themselves.
		w.marking = `SELECT concat_ws(' ', siding.clock(), (SELECT md5(string_agg((to_jsonb(l) - 'floor')::text, ' ' ORDER BY line_id)) FROM siding.lines l)`
		for _, table := range marked {
			w.marking += `, (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM siding.` + table + `)`
		}
		w.marking = w.db.Schema.SQL(w.marking + `)`)
	}
	var mark string
	if err := w.db.Pool.QueryRow(ctx, w.marking).Scan(&mark); err != nil {
		return "", fmt.Errorf("look for changes: %w", err)
	}
	return mark, nil
}
