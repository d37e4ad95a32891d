package pgworld

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// kept tables are not emptied: what the installation knows about itself, the
// stripes of keys, the clock, and the stores, which are only made readable.
var kept = []string{"installation", "routines", "goose_version", "key_stripes", "scenario_clock", "stores"}

// Reset empties the world. Deleting what is there is much faster than a new
// schema, and numbers that go on growing are nothing that a scenario can see.
func (w *World) Reset(ctx context.Context) error {
	tables, err := w.tables(ctx)
	if err != nil {
		return fmt.Errorf("reset world: %w", err)
	}
	var statements strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&statements, "DELETE FROM %s;\n", pgx.Identifier{w.db.Schema.Name(), t}.Sanitize())
	}
	err = w.db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.String()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, w.db.SQL(`
			UPDATE siding.stores SET failed_reads = 0, first_failure_at = NULL, unreadable = false, problem = NULL
			WHERE failed_reads > 0 OR unreadable`))
		return err
	})
	if err != nil {
		return fmt.Errorf("reset world: %w", err)
	}
	fresh := New(w.db)
	fresh.owned, fresh.digest, fresh.marking = w.owned, w.digest, w.marking
	*w = *fresh
	return nil
}

// tables lists the tables that Reset empties, each before those that it refers
// to: a table is made after what its foreign keys name.
func (w *World) tables(ctx context.Context) ([]string, error) {
	rows, err := w.db.Pool.Query(ctx, `
		SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> ALL ($2)
		ORDER BY c.oid DESC`, pgx.Identifier{w.db.Schema.Name()}.Sanitize(), kept)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return tables, nil
}
