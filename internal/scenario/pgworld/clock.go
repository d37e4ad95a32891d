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

// Settle lets intake and sweepers work until they find nothing more to do.
func (w *World) Settle(ctx context.Context) error {
	before, err := w.mark(ctx)
	if err != nil {
		return err
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
			return nil
		}
		before = after
	}
	return fmt.Errorf("sweepers still find something to do after %d passes", maxPasses)
}

// mark changes with every change that a sweeper could go on from: rows come and
// go, or have been written by a later transaction.
func (w *World) mark(ctx context.Context) (string, error) {
	var mark string
	err := w.db.Pool.QueryRow(ctx, w.db.SQL(`
		SELECT concat_ws(' ',
			(SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM siding.orders),
			(SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM siding.grants),
			(SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM siding.pauses),
			(SELECT string_agg(concat_ws('/', mode, reason, too_many), ' ' ORDER BY line_id) FROM siding.lines),
			(SELECT count(*) FROM siding.sessions WHERE ended_at IS NULL))`)).Scan(&mark)
	if err != nil {
		return "", fmt.Errorf("look for changes: %w", err)
	}
	return mark, nil
}
