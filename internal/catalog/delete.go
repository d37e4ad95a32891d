package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/definition"
)

// Delete removes a definition that nothing needs.
//
// Refusals: unknown_queue, unknown_lock, unknown_agent, unknown_workflow;
// queue_in_use (live orders; checked before) queue_listed, lock_in_use,
// agent_in_use, workflow_in_use.
func (c *Catalog) Delete(ctx context.Context, kind definition.Kind, name, person string) error {
	err := c.db.Tx(ctx, func(tx pgx.Tx) error {
		a := &application{tx: tx, db: c.db, person: person}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, c.db.Schema.AdvisoryKey("catalog")); err != nil {
			return fmt.Errorf("lock the catalog: %w", err)
		}
		var err error
		switch kind {
		case definition.KindQueue:
			err = a.deleteQueue(ctx, name)
		case definition.KindWorkflow:
			err = a.deleteWorkflow(ctx, name)
		case definition.KindAgent, definition.KindLock:
			err = a.deleteResource(ctx, string(kind), name)
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
		if err != nil {
			return err
		}
		return a.record(ctx, "delete", kind, name, map[string]string{})
	})
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	return nil
}
