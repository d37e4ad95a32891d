package server

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/schema"
)

// Migration is what package db needs to migrate the configured database.
func Migration(c config.Database, logger *slog.Logger) (db.MigrateConfig, error) {
	name, err := db.NewSchema(c.Schema)
	if err != nil {
		return db.MigrateConfig{}, fmt.Errorf("database.schema: %w", err)
	}
	routines, err := schema.Routines()
	if err != nil {
		return db.MigrateConfig{}, err
	}
	return db.MigrateConfig{URL: c.DirectURL(), Schema: name, Routines: routines, Logger: logger}, nil
}

// prepare makes sure that the schema is one that this binary can work on. A
// newer one is: migrations keep the version before alive.
func prepare(ctx context.Context, c config.Database, migrate bool, logger *slog.Logger) error {
	m, err := Migration(c, logger)
	if err != nil {
		return err
	}
	if migrate {
		return db.Migrate(ctx, m)
	}
	status, err := db.MigrateStatus(ctx, m)
	switch {
	case err != nil:
		return err
	case status.Current == 0:
		return fmt.Errorf("schema %s isn't installed; run `controller migrate up`, or serve with --migrate", c.Schema)
	case status.Current < status.Target:
		return fmt.Errorf("schema %s is at version %d, this binary needs %d; run `controller migrate up`, or serve with --migrate",
			c.Schema, status.Current, status.Target)
	case status.Clock != db.ProductionClock:
		return fmt.Errorf("schema %s has the clock of a %s, which stands still", c.Schema, status.Clock)
	case status.Current == status.Target && !status.RoutinesCurrent:
		// Not refused: while replicas are replaced one by one, one of the
		// version before must be able to restart.
		logger.Warn("the routines in the schema aren't this binary's; once all controllers are of one version, run `controller migrate up`",
			"schema", c.Schema)
	}
	return nil
}
