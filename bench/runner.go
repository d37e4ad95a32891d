// Package bench runs the same work on Siding and on its peers, side by side on
// one Postgres, and reports how they compare. It is a module of its own, so
// that peers are no dependency of the product.
package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Work is what a runner has to do. It is the same for all runners of a
// comparison; how it is done best is each runner's own business.
type Work struct {
	// Orders is the number of no-op orders to add and to bring to their end.
	Orders int

	// ArgBytes is the size of the arguments of each order in bytes, as JSON.
	// They are stored, and decoded again for whoever runs the order.
	ArgBytes int

	// Keys, if not 0, spreads the orders evenly over so many keys; orders of
	// one key must run one after another. A runner without such a feature does
	// the work without keys and says so in its settings.
	Keys int

	// PenalisedQueues, if not 0, spreads the orders evenly over so many queues
	// with a capacity and a penalty, on one resource. The same exception holds
	// as for Keys.
	PenalisedQueues int

	// Preload adds all orders before the first is run. Otherwise orders are
	// added and run at the same time.
	Preload bool
}

// Result is what one run took. All times are wall-clock times.
type Result struct {
	// Added and Done are counted in the database after the run, not by the
	// runner's own book-keeping.
	Added, Done int

	// Elapsed is from the first call that adds to the moment when the end of
	// the last order is committed.
	Elapsed time.Duration

	// AddElapsed is from the first call that adds to the commit of the last.
	AddElapsed time.Duration
}

// PerSecond is the number of orders brought to their end per second, adding
// included.
func (r Result) PerSecond() float64 {
	return float64(r.Done) / r.Elapsed.Seconds()
}

// Runner is one system under comparison. It is used for one run at a time:
// Setup, Run once, Teardown. Teardown is called after a failed Setup, too.
type Runner interface {
	// Name tells runners apart in the report, for example "river".
	Name() string

	// Settings says how the runner is configured for this work, for the report.
	Settings(Work) string

	// Setup prepares an empty database: schema, connections, workers.
	Setup(ctx context.Context, url string) error

	// Run does the work and verifies in the database that all of it was done.
	Run(ctx context.Context, work Work) (Result, error)

	// Teardown stops everything that Setup and Run started and closes all
	// connections, so that the database can be dropped.
	Teardown(ctx context.Context) error
}

// Options are the settings in a runner's specification.
type Options map[string]string

// ParseSpec splits the specification of a runner, "name" or
// "name:option=value,option=value".
func ParseSpec(spec string) (name string, options Options, err error) {
	name, rest, _ := strings.Cut(spec, ":")
	if name == "" {
		return "", nil, fmt.Errorf("runner %q: no name", spec)
	}
	options = Options{}
	for pair := range strings.SplitSeq(rest, ",") {
		if pair == "" {
			continue
		}
		option, value, ok := strings.Cut(pair, "=")
		if !ok || option == "" {
			return "", nil, fmt.Errorf("runner %q: %q isn't option=value", spec, pair)
		}
		if _, twice := options[option]; twice {
			return "", nil, fmt.Errorf("runner %q: option %s is given twice", spec, option)
		}
		options[option] = value
	}
	return name, options, nil
}
