package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/internal/bench"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/embedded"
	"github.com/siding-dev/siding/internal/schema"
)

// benchSchema holds the orders of a benchmark; it is dropped afterwards.
const benchSchema = "siding_bench"

func (a *app) benchCommand() *cobra.Command {
	var work bench.Work
	var settings bench.Settings
	var argBytes int
	c := &cobra.Command{
		Use: "bench", Short: "Measure how many no-op orders a second this machine brings from adding to outcome", Args: cobra.NoArgs,
		Long: `Adds no-op orders and runs them with an agent in this process, on durable
commits, and prints the rate, adding included. It works in the schema
` + benchSchema + ` of the given database, which must not exist, or, without
--database-url, in a temporary Postgres made from the binaries on this machine.
The module bench/ in the repository runs the same work beside other systems.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if work.Orders < 1 || argBytes < 0 || argBytes > 1<<20 {
				return cli.Usage(errors.New("--orders must be above 0 and --arg-bytes from 0 to 1048576"))
			}
			padding := strings.Repeat("0123456789abcdef", argBytes/16+1)
			work.Args = func(number int) json.RawMessage {
				head := fmt.Sprintf(`{"number":%d,"padding":"`, number)
				return json.RawMessage(head + padding[:max(0, argBytes-len(head)-2)] + `"}`)
			}
			return a.runBench(cmd, work, settings)
		},
	}
	f := c.Flags()
	f.IntVar(&work.Orders, "orders", 100_000, "orders to add and run")
	f.IntVar(&argBytes, "arg-bytes", 200, "size of each order's arguments")
	f.IntVar(&work.Keys, "keys", 0, "spread the orders over so many keys (0: independent)")
	f.IntVar(&work.PenalisedQueues, "penalised-queues", 0, "spread the orders over so many queues with a penalty")
	f.BoolVar(&work.Preload, "preload", false, "add all orders before the first is run")
	f.IntVar(&settings.Processes, "processes", 3000, "process limit of the agent")
	f.IntVar(&settings.AddBatch, "add-batch", 2000, "orders of one call that adds, up to 10000")
	f.IntVar(&settings.Adders, "adders", 2, "how many add at once")
	f.String("database-url", "", "`address` of Postgres (database.url; default a temporary one)")
	return c
}

func (a *app) runBench(cmd *cobra.Command, work bench.Work, settings bench.Settings) (err error) {
	config, err := a.loadConfig(cmd, map[string]string{"database-url": "database.url"})
	if err != nil {
		return cli.Usage(err)
	}
	ctx := cmd.Context()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	address := config.Database.DirectURL()
	if address == "" {
		pg, err := embedded.Start(ctx, embedded.Config{Settings: map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB"}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
		address = pg.URL("postgres")
	}
	name, err := db.NewSchema(benchSchema)
	if err != nil {
		return err
	}
	if err := claimSchema(ctx, address, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropSchema(ctx, address, name)) }()
	if err := schema.Migrate(ctx, address, name, db.ProductionClock); err != nil {
		return err
	}
	d, err := db.Open(ctx, db.Config{URL: address, Schema: benchSchema, PreparedStatements: true})
	if err != nil {
		return err
	}
	defer d.Close()
	settings.Logger = slog.Default()
	run := bench.New(d, settings)
	result, err := run.Do(ctx, work)
	if err = errors.Join(err, run.Close()); err != nil {
		return err
	}
	perSecond := float64(result.Done) / result.Elapsed.Seconds()
	t := cli.Table{Header: []string{"orders", "adding", "total", "orders/s"}}
	t.Row(result.Done, result.Adding.Round(time.Millisecond), result.Elapsed.Round(time.Millisecond), fmt.Sprintf("%.0f", perSecond))
	return a.printer().Print(map[string]any{
		"orders": result.Done, "adding_ms": result.Adding.Milliseconds(), "total_ms": result.Elapsed.Milliseconds(), "orders_per_second": perSecond,
	}, t)
}

// claimSchema refuses a schema that exists: it could be somebody's.
func claimSchema(ctx context.Context, address string, name db.Schema) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT to_regnamespace($1) IS NOT NULL`, name.Name()).Scan(&exists); err != nil {
		return fmt.Errorf("look for schema %s: %w", name, err)
	}
	if exists {
		return fmt.Errorf("the database has a schema %s already: drop it, or use another database", name)
	}
	return nil
}

func dropSchema(ctx context.Context, address string, name db.Schema) error {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(end, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(end)
	for _, s := range []string{name.ReportName(), name.Name()} {
		if _, err := conn.Exec(end, `DROP SCHEMA IF EXISTS `+pgx.Identifier{s}.Sanitize()+` CASCADE`); err != nil {
			return fmt.Errorf("drop schema %s: %w", s, err)
		}
	}
	return nil
}
