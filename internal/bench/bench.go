// Package bench drives no-op orders through the whole system, from adding to
// the outcome, and measures how many it brings to their end: dispatcher,
// keeper and agent in this process, as an application that embeds them would.
// `controller bench` runs it, and the module bench/ beside other systems.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent"
	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/order"
)

// Work is what is done.
type Work struct {
	// Orders is how many orders are added and run.
	Orders int
	// Args makes the arguments of the order with a number, a JSON object.
	Args func(number int) json.RawMessage
	// Keys spreads the orders over so many keys; 0: independent orders.
	Keys int
	// PenalisedQueues spreads them over so many queues with a penalty; 0: none.
	PenalisedQueues int
	// Preload adds all orders before the first is run.
	Preload bool
}

// Settings say how it is done. The zero value of each field means its default.
type Settings struct {
	// Processes is the agent's process limit. Default 3000.
	Processes int
	// AddBatch is how many orders one call adds. Default 2000.
	AddBatch int
	// Adders is how many add at once. Default 2.
	Adders int
	// ReportWriters is how many report transactions run at once. Default 1.
	ReportWriters int
	// MaxClaim and MaxReports bound the orders of one transaction. Default: those
	// of dispatch.Config.
	MaxClaim, MaxReports int
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
}

// WithDefaults fills in the defaults.
func (s Settings) WithDefaults() Settings {
	for _, d := range []struct {
		field *int
		value int
	}{{&s.Processes, 3000}, {&s.AddBatch, 2000}, {&s.Adders, 2}, {&s.ReportWriters, 1}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if s.Logger == nil {
		s.Logger = slog.Default()
	}
	return s
}

// Result is what a run took; times are wall-clock times.
type Result struct {
	// Added and Done are counted in the database.
	Added, Done int
	// Adding is from the first call that adds to the commit of the last.
	Adding time.Duration
	// Elapsed is from the first call that adds to the end of the last order.
	Elapsed time.Duration
}

// Run is one run on an empty, migrated schema.
type Run struct {
	db       *db.DB
	settings Settings
	dispatch *dispatch.Dispatch
	stop     context.CancelFunc
	group    *errgroup.Group
	// stopAgent ends the agent and returns when it has ended.
	stopAgent func()

	ran    atomic.Int64
	orders int64
	allRan chan struct{} // closed when so many have run
}

// New prepares a run; Close ends it.
func New(d *db.DB, settings Settings) *Run {
	settings = settings.WithDefaults()
	return &Run{
		db: d, settings: settings, allRan: make(chan struct{}),
		dispatch: dispatch.New(d, dispatch.Config{
			Logger: settings.Logger, ReportWriters: settings.ReportWriters, MaxClaim: settings.MaxClaim, MaxReports: settings.MaxReports,
		}),
	}
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
steps: [{job: noop, run: "true"}]
`

// apply defines the agent, its queues and the workflow.
func (r *Run) apply(ctx context.Context, work Work) error {
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
	docs, err := definition.Parse("bench.yaml", []byte(text+fmt.Sprintf(definitions, r.settings.Processes, list, ordering)))
	if err != nil {
		return err
	}
	_, err = catalog.New(r.db, r.dispatch).Apply(ctx, docs, "bench")
	return err
}

// handle is the work of one order.
func (r *Run) handle(context.Context, protocol.Lease) (json.RawMessage, error) {
	if r.ran.Add(1) == r.orders {
		close(r.allRan)
	}
	return nil, nil
}

func (r *Run) start(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.group, ctx = errgroup.WithContext(ctx)
	r.group.Go(func() error { return r.dispatch.Run(ctx) })
	r.group.Go(func() error { return keeper.New(r.db, r.dispatch, keeper.Config{Logger: r.settings.Logger}).Run(ctx) })
	a, err := agent.New(agent.Config{
		Name: "a1", Processes: r.settings.Processes, Logger: r.settings.Logger, DrainTimeout: -1,
		Handlers: map[string]agent.Handler{"noop": r.handle},
	}, r.dispatch)
	if err != nil {
		return err
	}
	// The agent ends first, while there still is somebody to close its session.
	working, stopAgent := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.group.Go(func() error {
		defer close(ended)
		return a.Run(working)
	})
	r.stopAgent = func() { stopAgent(); <-ended }
	return nil
}

// Do adds the orders and waits until each has its outcome.
func (r *Run) Do(ctx context.Context, work Work) (Result, error) {
	if err := r.apply(ctx, work); err != nil {
		return Result{}, err
	}
	r.orders = int64(work.Orders)
	if !work.Preload {
		if err := r.start(ctx); err != nil {
			return Result{}, err
		}
	}
	var result Result
	begin := time.Now()
	if err := r.add(ctx, work); err != nil {
		return Result{}, err
	}
	result.Adding = time.Since(begin)
	if work.Preload {
		if err := r.start(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := r.awaitEnd(ctx); err != nil {
		return Result{}, err
	}
	result.Elapsed = time.Since(begin)
	err := r.db.Pool.QueryRow(ctx, r.db.SQL(`SELECT (SELECT count(*) FROM siding.inputs), (SELECT count(*) FROM siding.outcomes WHERE state = 'finished')`)).
		Scan(&result.Added, &result.Done)
	return result, err
}

// call writes the JSON of a call that adds the orders from..to. Written by hand,
// as encoding/json would read the arguments once more to compact them.
func (w Work) call(from, to int) json.RawMessage {
	text := []byte{'['}
	for n := from; n < to; n++ {
		if n > from {
			text = append(text, ',')
		}
		text = append(text, `{"workflow":"bench"`...)
		if w.Keys > 0 {
			text = append(text, `,"key":"key-`...)
			text = append(strconv.AppendInt(text, int64(n%w.Keys), 10), '"')
		}
		if w.PenalisedQueues > 0 {
			text = append(text, `,"queue":"q`...)
			text = append(strconv.AppendInt(text, int64(1+n%w.PenalisedQueues), 10), '"')
		}
		if w.Args != nil {
			text = append(text, `,"args":`...)
			text = append(text, w.Args(n)...)
		}
		text = append(text, '}')
	}
	return append(text, ']')
}

func (r *Run) add(ctx context.Context, work Work) error {
	orders := order.New(r.db, r.dispatch)
	var mu sync.Mutex
	next := 0
	group, ctx := errgroup.WithContext(ctx)
	for range r.settings.Adders {
		group.Go(func() error {
			for {
				mu.Lock()
				from := next
				to := min(from+r.settings.AddBatch, work.Orders)
				next = to
				mu.Unlock()
				if from == to {
					return nil
				}
				if _, err := orders.Add(ctx, work.call(from, to), order.Person{Name: "bench"}); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// awaitEnd returns once no order is live, looked up in the database. It looks
// only when every order has run, so the looking costs nothing before; attempts
// that are repeated only make it look earlier.
func (r *Run) awaitEnd(ctx context.Context) error {
	if r.orders > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.allRan:
		}
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		var live []int64
		rows, err := r.db.Pool.Query(ctx, r.db.SQL(`SELECT id FROM siding.orders ORDER BY id DESC LIMIT 1`))
		if err == nil {
			live, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil || len(live) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Close stops what Do started.
func (r *Run) Close() error {
	if r.stop == nil {
		return nil
	}
	if r.stopAgent != nil {
		r.stopAgent()
	}
	r.stop()
	return r.group.Wait()
}
