// Package peers holds runners of other Postgres job queues, each configured
// for its best throughput.
package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/bench"
)

// RiverSettings are the knobs of River that bear on throughput. The batch
// completer is always on in River and has no settings.
type RiverSettings struct {
	Clients           int           // River clients in this process, each with its own producer and completer
	MaxWorkers        int           // orders running at once, per client; also the most that one fetch takes
	FetchCooldown     time.Duration // least time between two fetches of a client
	FetchPollInterval time.Duration // time between fetches without a notification
	Connections       int           // of the pool that all clients and adders share
	AddBatch          int           // orders per call of InsertManyFast, which is one COPY in one transaction
	Adders            int           // goroutines that add
}

// riverBest starts from the settings of River's own benchmark; README.md says
// what was tried and which differences were larger than the noise.
var riverBest = RiverSettings{
	Clients:           1,
	MaxWorkers:        1_000,
	FetchCooldown:     2 * time.Millisecond,
	FetchPollInterval: 20 * time.Millisecond,
	Connections:       10,
	AddBatch:          5_000,
	Adders:            1,
}

// ParseRiver returns River's best settings with the options put over them:
// clients, workers, cooldown, poll, connections, batch, adders.
func ParseRiver(options bench.Options) (RiverSettings, error) {
	s := riverBest
	numbers := map[string]*int{
		"clients": &s.Clients, "workers": &s.MaxWorkers, "connections": &s.Connections, "batch": &s.AddBatch, "adders": &s.Adders,
	}
	durations := map[string]*time.Duration{"cooldown": &s.FetchCooldown, "poll": &s.FetchPollInterval}
	var errs []error
	for option, value := range options {
		if number, ok := numbers[option]; ok {
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				errs = append(errs, fmt.Errorf("river: %s=%s isn't a number above 0", option, value))
			}
			*number = n
		} else if duration, ok := durations[option]; ok {
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				errs = append(errs, fmt.Errorf("river: %s=%s isn't a duration above 0", option, value))
			}
			*duration = d
		} else {
			errs = append(errs, fmt.Errorf("river: no option %s", option))
		}
	}
	return s, errors.Join(errs...)
}

// River runs the work on River's free edition. It knows neither keys nor
// penalised queues: such work is done as plain no-op jobs, which is less than
// what Siding has to do there.
type River struct {
	settings RiverSettings

	url     string
	pool    *pgxpool.Pool
	clients []*river.Client[pgx.Tx]
	started int          // clients that Teardown has to stop
	worked  atomic.Int64 // by workers; their completion may not be committed yet
	allRan  chan struct{}
	target  int64
}

// NewRiver returns a runner for one run.
func NewRiver(settings RiverSettings) *River {
	return &River{settings: settings, allRan: make(chan struct{})}
}

// Name is "river".
func (r *River) Name() string { return "river" }

// Settings names the settings, and what of the work River leaves out.
func (r *River) Settings(work bench.Work) string {
	s := r.settings
	text := fmt.Sprintf("River: InsertManyFast in batches of %d by %d, %d client(s) with MaxWorkers %d, FetchCooldown %s, FetchPollInterval %s, no job timeout, no subscriptions, %d connections",
		s.AddBatch, s.Adders, s.Clients, s.MaxWorkers, s.FetchCooldown, s.FetchPollInterval, s.Connections)
	var missing []string
	if work.Keys > 0 {
		missing = append(missing, "keys")
	}
	if work.PenalisedQueues > 0 {
		missing = append(missing, "penalised queues")
	}
	if len(missing) > 0 {
		text += "; without " + strings.Join(missing, " and ") + ", which its free edition doesn't have: plain no-op jobs"
	}
	return text
}

// riverArguments are the arguments of a job; River wants its kind as a method.
type riverArguments struct{ bench.Arguments }

func (riverArguments) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverArguments]
	ran func()
}

func (w *riverWorker) Work(context.Context, *river.Job[riverArguments]) error {
	w.ran()
	return nil
}

// Setup migrates the database and makes the clients. They aren't started.
func (r *River) Setup(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("river: parse URL: %w", err)
	}
	config.MaxConns = int32(r.settings.Connections)
	config.MinConns = config.MaxConns // none is opened within the measured time
	if r.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("river: open pool: %w", err)
	}
	r.url = url

	driver := riverpgxv5.New(r.pool)
	logger := slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger})
	if err != nil {
		return fmt.Errorf("river: make migrator: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("river: migrate: %w", err)
	}

	for at := range r.settings.Clients {
		workers := river.NewWorkers()
		if err := river.AddWorkerSafely(workers, &riverWorker{ran: r.jobRan}); err != nil {
			return fmt.Errorf("river: register worker: %w", err)
		}
		client, err := river.NewClient(driver, &river.Config{
			ID:                fmt.Sprintf("bench-%d", at+1),
			FetchCooldown:     r.settings.FetchCooldown,
			FetchPollInterval: r.settings.FetchPollInterval,
			JobTimeout:        -1, // saves a timer per job
			Logger:            logger,
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.settings.MaxWorkers}},
			Workers:           workers,
		})
		if err != nil {
			return fmt.Errorf("river: make client %d: %w", at+1, err)
		}
		r.clients = append(r.clients, client)
	}
	return nil
}

func (r *River) jobRan() {
	if r.worked.Add(1) == r.target {
		close(r.allRan)
	}
}

func (r *River) start(ctx context.Context) error {
	for _, client := range r.clients {
		if err := client.Start(ctx); err != nil {
			return fmt.Errorf("river: start client %d: %w", r.started+1, err)
		}
		r.started++
	}
	return nil
}

// Run adds the orders and waits until River has stored the completion of each.
func (r *River) Run(ctx context.Context, work bench.Work) (bench.Result, error) {
	watch, err := r.watch(ctx)
	if err != nil {
		return bench.Result{}, err
	}
	defer watch.Close(context.WithoutCancel(ctx))
	r.target = int64(work.Orders)

	if !work.Preload {
		if err := r.start(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	var result bench.Result
	begin := time.Now()
	if err := r.add(ctx, work); err != nil {
		return bench.Result{}, err
	}
	result.AddElapsed = time.Since(begin)
	if work.Preload {
		if err := r.start(ctx); err != nil {
			return bench.Result{}, err
		}
	}
	select {
	case <-r.allRan:
	case <-ctx.Done():
		return bench.Result{}, fmt.Errorf("river: %d of %d jobs worked: %w", r.worked.Load(), work.Orders, ctx.Err())
	}
	if err := awaitCompletions(ctx, watch); err != nil {
		return bench.Result{}, err
	}
	result.Elapsed = time.Since(begin)

	const count = "SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM river_job"
	if err := watch.QueryRow(ctx, count).Scan(&result.Added, &result.Done); err != nil {
		return bench.Result{}, fmt.Errorf("river: count jobs: %w", err)
	}
	return result, nil
}

// watch opens the connection that looks for jobs that aren't completed.
func (r *River) watch(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return nil, fmt.Errorf("river: connect: %w", err)
	}
	// Without statistics the planner might read the whole table for each look.
	if _, err := conn.Exec(ctx, "SET enable_seqscan = off"); err != nil {
		return nil, errors.Join(fmt.Errorf("river: prepare connection: %w", err), conn.Close(ctx))
	}
	return conn, nil
}

// lookInterval is the resolution of a run's end.
const lookInterval = 5 * time.Millisecond

// awaitCompletions returns once no job is left in a state before the end. It
// is called after the last job was worked, and so costs nothing before. River
// could tell by a subscription as well, which costs an event per job.
func awaitCompletions(ctx context.Context, conn *pgx.Conn) error {
	const look = "SELECT EXISTS (SELECT FROM river_job WHERE state IN ('running', 'available', 'retryable', 'scheduled', 'pending'))"
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		var open bool
		if err := conn.QueryRow(ctx, look).Scan(&open); err != nil {
			return fmt.Errorf("river: look for open jobs: %w", err)
		}
		if !open {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("river: wait for completions: %w", ctx.Err())
		}
	}
}

// add inserts all orders; each adder takes the next batch that nobody has.
func (r *River) add(ctx context.Context, work bench.Work) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for at := range r.settings.Adders {
		client := r.clients[at%len(r.clients)]
		group.Go(func() error {
			params := make([]river.InsertManyParams, 0, r.settings.AddBatch)
			for {
				last := min(int(next.Add(int64(r.settings.AddBatch))), work.Orders+r.settings.AddBatch)
				first := last - r.settings.AddBatch
				if first >= work.Orders {
					return nil
				}
				params = params[:0]
				for n := first; n < min(last, work.Orders); n++ {
					args := riverArguments{bench.NewArguments(bench.FirstNumber+n, work.ArgBytes)}
					params = append(params, river.InsertManyParams{Args: args})
				}
				if _, err := client.InsertManyFast(ctx, params); err != nil {
					return fmt.Errorf("river: add: %w", err)
				}
			}
		})
	}
	return group.Wait()
}

// Teardown stops the clients and closes the pool.
func (r *River) Teardown(ctx context.Context) error {
	var errs []error
	for _, client := range r.clients[:r.started] {
		if err := client.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("river: stop client: %w", err))
		}
	}
	if r.pool != nil {
		r.pool.Close()
	}
	return errors.Join(errs...)
}
