// Command controller is all of Siding in one binary: the server, the agent, the
// command line, and what one needs to try them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/siding-dev/siding/internal/cli"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run is main without the exit. The first signal asks everything to end; after
// it a second one ends the process at once.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}
