// Command compare runs the same work on several systems in turn, on one
// Postgres, and prints a Markdown table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/siding-dev/siding/bench"
	"github.com/siding-dev/siding/bench/peers"
	"github.com/siding-dev/siding/bench/siding"
	"github.com/siding-dev/siding/internal/db/embedded"
)

// runners are the systems that can be compared. The options come from the
// specification given by --runner.
var runners = map[string]func(bench.Options) (func() bench.Runner, error){
	"river": func(options bench.Options) (func() bench.Runner, error) {
		settings, err := peers.ParseRiver(options)
		return func() bench.Runner { return peers.NewRiver(settings) }, err
	},
	"siding": func(options bench.Options) (func() bench.Runner, error) {
		settings, err := siding.Parse(options)
		return func() bench.Runner { return siding.New(settings) }, err
	},
}

// scenarios set what of the work isn't a flag of its own.
var scenarios = map[string]func(*bench.Work){
	"noop":   func(*bench.Work) {},
	"keys":   func(w *bench.Work) { w.Keys = 1_000 },
	"queues": func(w *bench.Work) { w.PenalisedQueues = 2 },
}

// postgresSettings are those of a Postgres that is started here: durable, and
// large enough that no checkpoint falls into a run of usual length.
var postgresSettings = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"shared_buffers":     "1GB",
	"max_wal_size":       "4GB",
	"max_connections":    "200",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	url      string
	scenario string
	argBytes []int
	rounds   int
	work     bench.Work
	entrants []bench.Entrant
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{rounds: 3}
	var sizes string
	var specs []string
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.url, "url", "", "`URL` of the Postgres, whose role must be allowed to create databases; without it, one is started from local binaries, with its data in the temporary folder")
	flags.IntVar(&o.work.Orders, "n", 100_000, "`orders` per run")
	flags.StringVar(&sizes, "arg-bytes", "200,1024", "`sizes` of the arguments in bytes, separated by commas; a table each")
	flags.IntVar(&o.rounds, "rounds", o.rounds, "runs of each runner")
	flags.StringVar(&o.scenario, "scenario", "noop", names(scenarios))
	flags.BoolVar(&o.work.Preload, "preload", false, "add all orders before the first one is run")
	flags.Func("runner", "runner to compare, in turn with the others; `name[:option=value,...]`; names: "+names(runners)+"; may be repeated, the first is what the others are compared with", func(spec string) error {
		specs = append(specs, spec)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if len(specs) == 0 {
		specs = slices.Sorted(maps.Keys(runners))
	}

	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if o.work.Orders < 1 || o.work.Orders > bench.MaxOrders {
		errs = append(errs, fmt.Errorf("-n must be from 1 to %d", bench.MaxOrders))
	}
	if o.rounds < 1 {
		errs = append(errs, errors.New("--rounds must be above 0"))
	}
	for size := range strings.SplitSeq(sizes, ",") {
		var n int
		if _, err := fmt.Sscan(size, &n); err != nil || n < bench.MinArgBytes || n > bench.MaxArgBytes {
			errs = append(errs, fmt.Errorf("--arg-bytes %q isn't a number from %d to %d", size, bench.MinArgBytes, bench.MaxArgBytes))
		}
		o.argBytes = append(o.argBytes, n)
	}
	if set, ok := scenarios[o.scenario]; ok {
		set(&o.work)
	} else {
		errs = append(errs, fmt.Errorf("no scenario %q; there are %s", o.scenario, names(scenarios)))
	}
	for _, spec := range specs {
		entrant, err := enter(spec)
		if err == nil && slices.ContainsFunc(o.entrants, func(e bench.Entrant) bool { return e.Name == spec }) {
			err = fmt.Errorf("runner %q is given twice", spec)
		}
		errs = append(errs, err)
		o.entrants = append(o.entrants, entrant)
	}
	return o, errors.Join(errs...)
}

// enter makes an entrant that is named by its whole specification.
func enter(spec string) (bench.Entrant, error) {
	name, opts, err := bench.ParseSpec(spec)
	if err != nil {
		return bench.Entrant{}, err
	}
	configure, ok := runners[name]
	if !ok {
		return bench.Entrant{}, fmt.Errorf("no runner %q; there are %s", name, names(runners))
	}
	newRunner, err := configure(opts)
	return bench.Entrant{Name: spec, New: newRunner}, err
}

func names[T any](of map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), ", ")
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.url == "" {
		fmt.Fprintln(stderr, "starting a Postgres")
		postgres, err := embedded.Start(ctx, embedded.Config{Settings: postgresSettings})
		if err != nil {
			return fmt.Errorf("start a Postgres: %w", err)
		}
		defer func() {
			if stopErr := postgres.Stop(context.WithoutCancel(ctx)); stopErr != nil {
				err = errors.Join(err, fmt.Errorf("stop the Postgres: %w", stopErr))
			}
		}()
		o.url = postgres.URL("postgres")
	}
	server, err := bench.NewServer(o.url)
	if err != nil {
		return err
	}
	facts, err := server.Facts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d orders per run, scenario %s, %d rounds, preload %t; %d CPUs for Postgres and runners together, %s\n\nPostgres: %s\n",
		o.work.Orders, o.scenario, o.rounds, o.work.Preload, runtime.NumCPU(), runtime.Version(), facts)
	for _, entrant := range o.entrants {
		fmt.Fprintf(stdout, "\n`%s`: %s\n", entrant.Name, entrant.New().Settings(o.work))
	}
	for _, size := range o.argBytes {
		work := o.work
		work.ArgBytes = size
		runs, err := bench.Compare(ctx, server, o.entrants, work, o.rounds, func(r bench.Run) {
			fmt.Fprintf(stderr, "%d bytes, round %d, %s: %.0f jobs/s\n", size, r.Round, r.Entrant, r.Result.PerSecond())
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "\nArguments of %d bytes:\n\n", size)
		var rows []string
		for _, entrant := range o.entrants {
			rows = append(rows, entrant.Name)
		}
		if err := bench.WriteTable(stdout, rows, runs); err != nil {
			return err
		}
	}
	return nil
}
