package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why ORDER", Short: "Say why an order waits: what keeps it, and what would end that", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			answer, err := c.Why(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().Why(answer)
		}),
	}
}

func (a *app) queueCommand() *cobra.Command {
	return group("queue", "Look at the lists of a queue; - names the orders without one",
		a.queueListsCommand(), a.queueOverflowCommand(), a.queueCountsCommand())
}

func (a *app) queueListsCommand() *cobra.Command {
	var list, cursor string
	var limit int
	c := &cobra.Command{
		Use: "lists QUEUE", Short: "Show the lists of a queue, or one of them", Args: cobra.ExactArgs(1),
		Long: `Shows the lists waiting, pending, scheduled, dead, attention and suspended of a
queue. Every live order stands in exactly one.`,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			names := []string{"waiting", "pending", "scheduled", "dead", "attention", "suspended"}
			if list != "" {
				names = []string{list}
			}
			pages := make([]client.ListPage, 0, len(names))
			for _, name := range names {
				page, err := c.List(cmd.Context(), args[0], name, cursor, limit)
				if err != nil {
					return err
				}
				pages = append(pages, page)
			}
			if list != "" {
				return a.printer().QueueList(pages[0])
			}
			return a.printer().QueueLists(pages)
		}),
	}
	c.Flags().StringVar(&list, "list", "", "only that `list`")
	c.Flags().StringVar(&cursor, "cursor", "", "`cursor` at which the list ended before; with --list")
	c.Flags().IntVar(&limit, "limit", 100, "most orders of a list, up to 1000")
	return c
}

func (a *app) queueOverflowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "overflow QUEUE", Short: "Show who is in a queue and who is behind its capacity, at each resource", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			places, err := c.Overflow(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().Places(places)
		}),
	}
}

func (a *app) queueCountsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "counts", Short: "Show how long all lists are, as counted every few seconds", Args: cobra.NoArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			counts, err := c.Counts(cmd.Context())
			if err != nil {
				return err
			}
			return a.printer().Counts(counts)
		}),
	}
}

func (a *app) lineCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show AGENT", Short: "Show how the line of an agent or cluster treats blocked orders", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			line, err := c.Line(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().LineMode(line)
		}),
	}
	var mode, reason string
	set := &cobra.Command{
		Use: "set AGENT", Short: "Set whether ready orders pass blocked ones; needs --reason", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			line, err := c.SetLineMode(cmd.Context(), args[0], mode, reason)
			if err != nil {
				return err
			}
			return a.printer().LineMode(line)
		}),
	}
	set.Flags().StringVar(&mode, "mode", "", "pass, strict, or auto: the facts decide")
	set.Flags().StringVar(&reason, "reason", "", "why; recorded")
	mustBeGiven(set, "mode")
	return group("line", "Look at and set how a line treats blocked orders", show, set)
}

func (a *app) pauseCommand() *cobra.Command {
	var until, reason string
	c := &cobra.Command{
		Use: "pause [queue|agent|lock|workflow NAME]", Short: "Keep orders of a definition from starting; needs --reason",
		Long: `Keeps the orders of a queue, an agent's line, a lock or a workflow from starting,
until a time or until it is unpaused. Without arguments it shows what is paused.`,
		Args: noneOrTwo, ValidArgsFunction: kindArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			var pauses []client.Pause
			var err error
			if len(args) == 0 {
				pauses, err = c.Pauses(cmd.Context())
			} else {
				kind, wrong := kindOf(args[0])
				if wrong != nil {
					return wrong
				}
				pauses, err = c.Pause(cmd.Context(), kind, args[1], until, reason)
			}
			if err != nil {
				return err
			}
			return a.printer().Pauses(pauses)
		}),
	}
	c.Flags().StringVar(&until, "until", "", "`time` at which it ends by itself: 2026-01-31T08:00:00Z, or 90m from now")
	c.Flags().StringVar(&reason, "reason", "", "why; recorded")
	return c
}

func noneOrTwo(_ *cobra.Command, args []string) error {
	if len(args) != 0 && len(args) != 2 {
		return fmt.Errorf("takes a kind and a name, or nothing; got %d arguments", len(args))
	}
	return nil
}

func (a *app) unpauseCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "unpause queue|agent|lock|workflow NAME", Short: "End a pause", Args: cobra.ExactArgs(2), ValidArgsFunction: kindArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if err := c.Unpause(cmd.Context(), kind, args[1], reason); err != nil {
				return err
			}
			return a.printer().Say(map[string]string{"unpaused": kind + "/" + args[1]}, "%s %s isn't paused", kind, args[1])
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why; recorded")
	return c
}

func (a *app) sessionCommand() *cobra.Command {
	var agent, cursor string
	var ended bool
	var limit int
	list := &cobra.Command{
		Use: "list", Short: "List the sessions of agents, newest first", Args: cobra.NoArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			page, err := c.Sessions(cmd.Context(), agent, ended, cursor, limit)
			if err != nil {
				return err
			}
			return a.printer().Sessions(page)
		}),
	}
	list.Flags().StringVar(&agent, "agent", "", "`name` of an agent")
	list.Flags().BoolVar(&ended, "ended", false, "those that ended as well")
	list.Flags().StringVar(&cursor, "cursor", "", "`cursor` at which another list ended")
	list.Flags().IntVar(&limit, "limit", 100, "most sessions, up to 1000")
	return group("session", "Look at the agents that are there", list)
}

func (a *app) eventCommand() *cobra.Command {
	var cursor string
	var limit int
	var follow bool
	list := &cobra.Command{
		Use: "list", Short: "Show the log of events, the oldest first", Args: cobra.NoArgs,
		Long: `Shows what happened besides adding, starting and ending: decisions, gates opened
late, attention, retries, line modes. --follow begins with the next event.`,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			if follow && cursor == "" {
				cursor = client.TailEvents
			}
			found, err := c.Events(cmd.Context(), cursor, limit)
			if err != nil {
				return err
			}
			if !follow {
				return a.printer().Events(found, limit)
			}
			for {
				if err := a.printer().MoreEvents(found.Events); err != nil {
					return err
				}
				if len(found.Events) < limit {
					if err := pause(cmd.Context(), time.Second); err != nil {
						return err
					}
				}
				if found, err = c.Events(cmd.Context(), found.Next, limit); err != nil {
					return err
				}
			}
		}),
	}
	list.Flags().StringVar(&cursor, "cursor", "", "`cursor` at which another list ended")
	list.Flags().IntVar(&limit, "limit", 100, "most events, up to 1000")
	list.Flags().BoolVarP(&follow, "follow", "F", false, "go on, a line per event")
	return group("event", "Look at the log of decisions and other events", list)
}
