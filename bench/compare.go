package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Entrant makes the runners of one column of a comparison: a new one for each
// run, so that nothing is carried over.
type Entrant struct {
	Name string
	New  func() Runner
}

// Run is one finished run of an entrant.
type Run struct {
	Entrant string
	Round   int // from 1
	Result  Result
}

// Compare lets the entrants do the work in turn, A B A B, each time in a
// database of its own, and calls progress after each run. Alternating spreads
// what changes on the machine in the meantime over all of them.
func Compare(ctx context.Context, server *Server, entrants []Entrant, work Work, rounds int, progress func(Run)) ([]Run, error) {
	var runs []Run
	for round := 1; round <= rounds; round++ {
		for at, entrant := range entrants {
			database := fmt.Sprintf("bench_%d_%d", round, at+1)
			result, err := runOnce(ctx, server, database, entrant.New(), work)
			if err != nil {
				return runs, fmt.Errorf("%s, round %d: %w", entrant.Name, round, err)
			}
			run := Run{Entrant: entrant.Name, Round: round, Result: result}
			runs = append(runs, run)
			progress(run)
		}
	}
	return runs, nil
}

// cleanupTimeout is what a runner gets to stop, also after an interruption.
const cleanupTimeout = time.Minute

func runOnce(ctx context.Context, server *Server, database string, runner Runner, work Work) (result Result, err error) {
	url, err := server.CreateDatabase(ctx, database)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, runner.Teardown(cleanup), server.DropDatabase(cleanup, database))
	}()
	if err := runner.Setup(ctx, url); err != nil {
		return Result{}, fmt.Errorf("set up: %w", err)
	}
	runtime.GC() // the garbage of the run before is no cost of this one
	result, err = runner.Run(ctx, work)
	if err != nil {
		return Result{}, fmt.Errorf("run: %w", err)
	}
	if result.Added != work.Orders || result.Done != work.Orders {
		return Result{}, fmt.Errorf("run: %d orders were asked for, %d were added, %d were done", work.Orders, result.Added, result.Done)
	}
	return result, nil
}
