package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
)

func (a *app) orderCommand() *cobra.Command {
	return group("order", "Add, look at and decide about orders; ORDER is an id or ref:REFERENCE",
		a.orderAddCommand(), a.orderListCommand(), a.orderShowCommand(), a.orderHistoryCommand(), a.orderOutputCommand(), a.orderOutputsCommand(),
		a.decision("cancel", "End orders; a running one is stopped first", (*client.Client).Cancel),
		a.orderSuspendCommand(),
		a.decision("resume", "Put suspended orders back in line", (*client.Client).Resume),
		a.orderResolveCommand(),
		a.decision("release", "Let orders go ahead of their predecessors in their key; needs --reason", (*client.Client).Release),
		a.orderAssignCommand(), a.orderMoveCommand())
}

func (a *app) orderListCommand() *cobra.Command {
	var f client.OrderFilter
	var cursor string
	var limit int
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List orders, live and ended, newest first", Args: cobra.NoArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			page, err := c.Orders(cmd.Context(), f, cursor, limit)
			for err == nil && all && page.Next != "" {
				var more client.OrderPage
				more, err = c.Orders(cmd.Context(), f, page.Next, limit)
				page.Orders, page.Next = append(page.Orders, more.Orders...), more.Next
			}
			if err != nil {
				return err
			}
			return a.printer().Orders(page)
		}),
	}
	flags := c.Flags()
	flags.StringVar(&f.State, "state", "", "a `state`: waiting, running, suspended, attention, dead, finished, cancelled; live or ended")
	flags.StringVar(&f.Workflow, "workflow", "", "`name` of a workflow")
	flags.StringVar(&f.Queue, "queue", "", "`name` of a queue; - for the orders without one")
	flags.StringVar(&f.Key, "key", "", "a `key`")
	flags.StringVar(&f.RefPrefix, "ref", "", "`beginning` of references; the list is then by reference")
	flags.StringVar(&cursor, "cursor", "", "`cursor` at which another list ended")
	flags.IntVar(&limit, "limit", 100, "most orders, up to 1000")
	flags.BoolVar(&all, "all", false, "all pages")
	return c
}

func (a *app) orderShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ORDER", Short: "Show an order", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			o, err := c.Order(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().Order(o)
		}),
	}
}

func (a *app) orderHistoryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "history ORDER", Short: "Show what happened to an order and who decided", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			moments, err := c.History(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().History(moments)
		}),
	}
}

// followEvery is how often a follower asks for more.
const followEvery = 500 * time.Millisecond

func (a *app) orderOutputCommand() *cobra.Command {
	var r client.TextRequest
	var follow bool
	c := &cobra.Command{
		Use: "output ORDER", Short: "Show what an order's job wrote", Args: cobra.ExactArgs(1),
		Long: `Writes what the job of an order wrote to stdout (or --stream stderr), as it is,
whatever -o says.`,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			return a.copyOutput(cmd.Context(), c, args[0], r, follow)
		}),
	}
	flags := c.Flags()
	flags.StringVar(&r.Stream, "stream", "stdout", "stdout or stderr")
	flags.Int64Var(&r.Lease, "lease", 0, "the attempt; 0 for the last one that wrote anything")
	flags.Int64Var(&r.Tail, "tail", 0, "only that many bytes from the end")
	flags.BoolVarP(&follow, "follow", "F", false, "go on until the order has ended")
	return c
}

func (a *app) copyOutput(ctx context.Context, c *client.Client, order string, r client.TextRequest, follow bool) error {
	ended := false
	for {
		text, err := c.Text(ctx, order, r)
		if err != nil {
			return err
		}
		if _, err := a.Out.Write(text.Data); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if text.Lease != 0 {
			r.Lease = text.Lease
		}
		r.Tail, r.Offset = 0, text.Next
		switch {
		case text.Next < text.Size && len(text.Data) > 0: // nothing came: a gap
			continue
		case !follow || ended:
			return nil
		}
		o, err := c.Order(ctx, order)
		if err != nil {
			return err
		}
		// What was written before the end is asked for once more.
		if ended = o.EndedAt != nil; !ended {
			if err := pause(ctx, followEvery); err != nil {
				return err
			}
		}
	}
}

// pause waits, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (a *app) orderOutputsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "outputs ORDER", Short: "Show the values that an order's jobs handed back", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			outputs, err := c.Outputs(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().Outputs(outputs)
		}),
	}
}

// decide makes a command that does the same with each order it names. All are
// tried; the first refusal is returned in the end.
func (a *app) decide(use, short string, do func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error)) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: use + " ORDER...", Short: short, Args: cobra.MinimumNArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			var page client.OrderPage
			var errs []error
			for _, order := range args {
				o, err := do(cmd.Context(), c, order, reason)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				page.Orders = append(page.Orders, o)
			}
			if len(page.Orders) > 0 {
				if err := a.printer().Orders(page); err != nil {
					return err
				}
			}
			// All but the last are written here, so that each has its code.
			for i, err := range errs {
				if i == len(errs)-1 {
					return err
				}
				cli.Fail(a.Err, cmd.CommandPath(), err)
			}
			return nil
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why; recorded")
	return c
}

// decision is decide for a method of the client.
func (a *app) decision(use, short string, do func(*client.Client, context.Context, string, string) (client.Order, error)) *cobra.Command {
	return a.decide(use, short, func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error) {
		return do(c, ctx, order, reason)
	})
}

func (a *app) orderSuspendCommand() *cobra.Command {
	var kill bool
	c := a.decide("suspend", "Take orders out of their line; the place is kept",
		func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error) {
			return c.Suspend(ctx, order, kill, reason)
		})
	c.Flags().BoolVar(&kill, "kill", false, "stop a running one at once instead of after its step")
	return c
}

func (a *app) orderResolveCommand() *cobra.Command {
	var action string
	c := a.decide("resolve", "Decide about orders in attention or dead; needs --reason",
		func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error) {
			return c.Resolve(ctx, order, action, reason)
		})
	c.Flags().StringVar(&action, "action", "", "attention: resume, skip, cancel; dead: retry, skip, cancel")
	mustBeGiven(c, "action")
	return c
}

func (a *app) orderAssignCommand() *cobra.Command {
	var queue string
	c := a.decide("assign", "Assign a queue to orders, or none",
		func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error) {
			name := queue
			if name == "-" {
				name = ""
			}
			return c.Assign(ctx, order, name, reason)
		})
	c.Flags().StringVar(&queue, "queue", "", "`name` of the queue; - for none")
	mustBeGiven(c, "queue")
	return c
}

func (a *app) orderMoveCommand() *cobra.Command {
	var first, last bool
	var before, after string
	c := a.decide("move", "Give orders another place in their queue",
		func(ctx context.Context, c *client.Client, order, reason string) (client.Order, error) {
			switch {
			case first:
				return c.Move(ctx, order, "first", "", reason)
			case last:
				return c.Move(ctx, order, "last", "", reason)
			case before != "":
				return c.Move(ctx, order, "before", before, reason)
			}
			return c.Move(ctx, order, "after", after, reason)
		})
	c.Flags().BoolVar(&first, "first", false, "before all others")
	c.Flags().BoolVar(&last, "last", false, "to the end, as if added now")
	c.Flags().StringVar(&before, "before", "", "directly before that `order`")
	c.Flags().StringVar(&after, "after", "", "directly after that `order`")
	c.MarkFlagsMutuallyExclusive("first", "last", "before", "after")
	c.MarkFlagsOneRequired("first", "last", "before", "after")
	return c
}

// mustBeGiven marks a flag of our own as required.
func mustBeGiven(c *cobra.Command, flag string) {
	if err := c.MarkFlagRequired(flag); err != nil {
		panic(err) // there is no such flag
	}
}

// openFile opens a file, or standard input for "-", with its size; -1 if that
// isn't known.
func (a *app) openFile(file string) (io.ReadCloser, int64, error) {
	if file == "-" {
		return io.NopCloser(a.In), -1, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, cli.Usage(err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errors.New(file + " is a directory")
	}
	if err != nil {
		return nil, 0, errors.Join(cli.Usage(err), f.Close())
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}
