package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db/embedded"
	"github.com/siding-dev/siding/internal/scenario/pgworld"
)

func (a *app) scenarioCommand() *cobra.Command {
	run := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run scenario files and show what was observed beside what was expected",
		Long: `Runs scenario files in a schema of its own, which is dropped afterwards: in the
configured database, or, if none is configured, in a temporary Postgres made
from the binaries on this machine. The clock is the scenario's own, so nothing
waits.

Exit codes: 0 all agree; 1 something differs; 2 a file is no scenario, or the
database failed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.runScenarios,
	}
	run.Flags().String("database-url", "", "`address` of Postgres (database.url; default a temporary one)")
	return group("scenario", "Run observation tables: in which order would these orders run?", run)
}

func (a *app) runScenarios(cmd *cobra.Command, files []string) (err error) {
	c, err := a.loadConfig(cmd, map[string]string{"database-url": "database.url"})
	if err != nil {
		return cli.Usage(err)
	}
	ctx := cmd.Context()
	// What the world logs is about a schema that nobody else sees.
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	address := c.Database.DirectURL()
	if address == "" {
		pg, err := startTemporary(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
		address = pg.URL("postgres")
	}
	agree, err := pgworld.RunFiles(ctx, address, files, a.Out, a.format == cli.FormatJSON)
	if err != nil {
		return err
	}
	if !agree {
		return cli.Quiet(cli.ExitNo)
	}
	return nil
}

// startTemporary starts a Postgres whose data is thrown away, so that it
// needn't be safe from crashes.
func startTemporary(ctx context.Context) (*embedded.Server, error) {
	return embedded.Start(ctx, embedded.Config{NoSync: true, Settings: map[string]string{
		"fsync": "off", "jit": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off",
		"wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "1GB", "shared_buffers": "128MB",
	}})
}

// stopPostgres stops a private server also when ctx has ended.
func stopPostgres(ctx context.Context, pg *embedded.Server) error {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err := pg.Stop(end); err != nil {
		return fmt.Errorf("stop the private Postgres: %w", err)
	}
	return nil
}
