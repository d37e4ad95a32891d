// Package siding runs the benchmark's work on Siding.
package siding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/siding-dev/siding/bench"
	load "github.com/siding-dev/siding/internal/bench"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/schema"
)

// Settings are the runner's options.
type Settings struct {
	load.Settings
	Connections int
}

// Parse reads the options of a specification.
func Parse(options bench.Options) (Settings, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
	s := Settings{Settings: load.Settings{Logger: quiet}.WithDefaults(), Connections: 10}
	fields := map[string]*int{
		"processes": &s.Processes, "connections": &s.Connections, "batch": &s.AddBatch, "adders": &s.Adders, "writers": &s.ReportWriters,
		"claim": &s.MaxClaim, "reports": &s.MaxReports,
	}
	var errs []error
	for option, value := range options {
		field, ok := fields[option]
		if !ok {
			errs = append(errs, fmt.Errorf("siding: no option %s", option))
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("siding: %s=%s isn't a number above 0", option, value))
			continue
		}
		*field = n
	}
	return s, errors.Join(errs...)
}

// Siding is the runner.
type Siding struct {
	settings Settings
	db       *db.DB
	run      *load.Run
}

// New returns a runner for one run.
func New(settings Settings) *Siding { return &Siding{settings: settings} }

// Name is "siding".
func (s *Siding) Name() string { return "siding" }

// Settings names the settings.
func (s *Siding) Settings(bench.Work) string {
	return fmt.Sprintf("Siding: add_orders in batches of %d by %d, one in-process agent with %d processes, %d report writers, %d connections",
		s.settings.AddBatch, s.settings.Adders, s.settings.Processes, s.settings.ReportWriters, s.settings.Connections)
}

// Setup migrates the database.
func (s *Siding) Setup(ctx context.Context, url string) error {
	name, err := db.NewSchema(db.DefaultSchema)
	if err != nil {
		return fmt.Errorf("siding: %w", err)
	}
	slog.SetDefault(s.settings.Logger) // what migrations tell
	if err := schema.Migrate(ctx, url, name, db.ProductionClock); err != nil {
		return fmt.Errorf("siding: %w", err)
	}
	s.db, err = db.Open(ctx, db.Config{URL: url, MaxConns: int32(s.settings.Connections), PreparedStatements: true}) // small
	if err != nil {
		return fmt.Errorf("siding: %w", err)
	}
	s.run = load.New(s.db, s.settings.Settings)
	return nil
}

// Run adds the orders and waits until each has its outcome.
func (s *Siding) Run(ctx context.Context, work bench.Work) (bench.Result, error) {
	result, err := s.run.Do(ctx, load.Work{
		Orders: work.Orders, Keys: work.Keys, PenalisedQueues: work.PenalisedQueues, Preload: work.Preload,
		Args: func(number int) json.RawMessage {
			text, err := json.Marshal(bench.NewArguments(bench.FirstNumber+number, work.ArgBytes))
			if err != nil {
				panic(err) // a struct of a number and a string
			}
			return text
		},
	})
	return bench.Result{Added: result.Added, Done: result.Done, Elapsed: result.Elapsed, AddElapsed: result.Adding}, err
}

// Teardown stops what Run started.
func (s *Siding) Teardown(context.Context) error {
	var err error
	if s.run != nil {
		err = s.run.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	return err
}
