// Package siding runs the benchmark's work on Siding: dispatcher, keeper and
// agent in this process, as an application that embeds them would.
package siding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/bench"
	"github.com/siding-dev/siding/internal/agent"
	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/schema"
)

// Settings are the runner's options.
type Settings struct {
	Processes   int // of the agent
	Connections int
	AddBatch    int
	Adders      int
	Writers     int // report transactions at once
}

// Parse reads the options of a specification.
func Parse(options bench.Options) (Settings, error) {
	s := Settings{Processes: 3000, Connections: 10, AddBatch: 1000, Adders: 1, Writers: 2}
	fields := map[string]*int{
		"processes": &s.Processes, "connections": &s.Connections, "batch": &s.AddBatch, "adders": &s.Adders, "writers": &s.Writers,
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
	stop     context.CancelFunc
	group    *errgroup.Group
	dispatch *dispatch.Dispatch
	logger   *slog.Logger
}

// New returns a runner for one run.
func New(settings Settings) *Siding {
	return &Siding{settings: settings, logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))}
}

// Name is "siding".
func (s *Siding) Name() string { return "siding" }

// Settings names the settings.
func (s *Siding) Settings(bench.Work) string {
	return fmt.Sprintf("Siding: add_orders in batches of %d by %d, one in-process agent with %d processes, %d report writers, %d connections",
		s.settings.AddBatch, s.settings.Adders, s.settings.Processes, s.settings.Writers, s.settings.Connections)
}

// Setup migrates the database and starts dispatcher and keeper.
func (s *Siding) Setup(ctx context.Context, url string) error {
	name, err := db.NewSchema(db.DefaultSchema)
	if err != nil {
		return err
	}
	if err := schema.Migrate(ctx, url, name, db.ProductionClock); err != nil {
		return err
	}
	s.db, err = db.Open(ctx, db.Config{URL: url, MaxConns: int32(s.settings.Connections), PreparedStatements: true})
	if err != nil {
		return err
	}
	s.dispatch = dispatch.New(s.db, dispatch.Config{Logger: s.logger, ReportWriters: s.settings.Writers})
	return nil
}

const definitions = `
kind: agent
name: a1
processes: %d
queues: %s
---
kind: workflow
name: bench
ordering: %s
defaults: {agent: a1}
steps: [{job: noop, noop: true}]
`

// apply defines the agent, its queues and the workflow.
func (s *Siding) apply(ctx context.Context, work bench.Work) error {
	text, ordering := "", "independent"
	queues := []string{}
	for i := range work.PenalisedQueues {
		name := "q" + strconv.Itoa(i+1)
		queues = append(queues, name)
		text += fmt.Sprintf("kind: queue\nname: %s\ncapacity: %d\npenalty: %d\n---\n", name, 5-2*i%4, 2+4*i)
	}
	if work.Keys > 0 {
		ordering = "{key: order}"
	}
	list, err := json.Marshal(queues)
	if err != nil {
		return err
	}
	docs, err := definition.Parse("bench.yaml", []byte(text+fmt.Sprintf(definitions, s.settings.Processes, list, ordering)))
	if err != nil {
		return err
	}
	_, err = catalog.New(s.db, s.dispatch).Apply(ctx, docs, "bench")
	return err
}

func (s *Siding) start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.group, ctx = errgroup.WithContext(ctx)
	s.group.Go(func() error { return s.dispatch.Run(ctx) })
	s.group.Go(func() error { return keeper.New(s.db, s.dispatch, keeper.Config{Logger: s.logger}).Run(ctx) })
	a, err := agent.New(agent.Config{
		Name: "a1", Processes: s.settings.Processes, Logger: s.logger, DrainTimeout: -1,
		Handlers: map[string]agent.Handler{"noop": func(context.Context, protocol.Lease) (json.RawMessage, error) { return nil, nil }},
	}, s.dispatch)
	if err != nil {
		return err
	}
	s.group.Go(func() error { return a.Run(ctx) })
	return nil
}

// Run adds the orders and waits until each has its outcome.
func (s *Siding) Run(ctx context.Context, work bench.Work) (bench.Result, error) {
	if err := s.apply(ctx, work); err != nil {
		return bench.Result{}, err
	}
	if !work.Preload {
		if err := s.start(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	var result bench.Result
	begin := time.Now()
	if err := s.add(ctx, work); err != nil {
		return bench.Result{}, err
	}
	result.AddElapsed = time.Since(begin)
	if work.Preload {
		if err := s.start(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	if err := s.awaitEnd(ctx); err != nil {
		return bench.Result{}, err
	}
	result.Elapsed = time.Since(begin)
	err := s.db.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM siding.inputs), (SELECT count(*) FROM siding.outcomes WHERE state = 'finished')`).
		Scan(&result.Added, &result.Done)
	return result, err
}

// newOrder is one element of a call that adds.
type newOrder struct {
	Workflow string          `json:"workflow"`
	Key      string          `json:"key,omitempty"`
	Queue    string          `json:"queue,omitempty"`
	Args     bench.Arguments `json:"args"`
}

func (s *Siding) add(ctx context.Context, work bench.Work) error {
	orders := order.New(s.db, s.dispatch)
	var mu sync.Mutex
	next := 0
	group, ctx := errgroup.WithContext(ctx)
	for range s.settings.Adders {
		group.Go(func() error {
			for {
				mu.Lock()
				from := next
				to := min(from+s.settings.AddBatch, work.Orders)
				next = to
				mu.Unlock()
				if from == to {
					return nil
				}
				batch := make([]newOrder, to-from)
				for i := range batch {
					n := from + i
					batch[i] = newOrder{Workflow: "bench", Args: bench.NewArguments(bench.FirstNumber+n, work.ArgBytes)}
					if work.Keys > 0 {
						batch[i].Key = "key-" + strconv.Itoa(n%work.Keys)
					}
					if work.PenalisedQueues > 0 {
						batch[i].Queue = "q" + strconv.Itoa(1+n%work.PenalisedQueues)
					}
				}
				text, err := json.Marshal(batch)
				if err != nil {
					return err
				}
				if _, err := orders.Add(ctx, text, order.Person{Name: "bench"}); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// awaitEnd returns once no order is live, looked up in the database.
func (s *Siding) awaitEnd(ctx context.Context) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		var live bool
		if err := s.db.Pool.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM siding.orders WHERE state = 'running') OR EXISTS (SELECT FROM siding.orders WHERE candidate AND NOT late)
			    OR EXISTS (SELECT FROM siding.orders WHERE candidate AND late) OR EXISTS (SELECT FROM siding.orders WHERE intake_closed)`).Scan(&live); err != nil {
			return err
		}
		if !live {
			if err := s.db.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM siding.orders)`).Scan(&live); err != nil || !live {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Teardown stops what Setup and Run started.
func (s *Siding) Teardown(context.Context) error {
	var err error
	if s.stop != nil {
		s.stop()
		err = s.group.Wait()
	}
	if s.db != nil {
		s.db.Close()
	}
	return err
}
