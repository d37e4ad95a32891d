package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
)

// Environment variables of the commands that talk to a controller.
const (
	urlEnv   = "SIDING_URL"
	tokenEnv = "SIDING_TOKEN"
)

// app is what all commands share.
type app struct {
	cli.Streams

	configFile string
	urls       []string
	token      string
	onBehalfOf string
	format     cli.Format
}

// execute runs one command and returns the exit code (see package cli).
func execute(ctx context.Context, args []string, streams cli.Streams) int {
	a := &app{Streams: streams, format: cli.FormatTable}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return cli.ExitFailed
	}
	return cli.Fail(streams.Err, ran.CommandPath(), err)
}

const rootLong = `Siding is a workflow controller on Postgres. Orders wait in line; an order that
still waits for its attachment steps onto the siding, keeps its place, and lets
the ready ones pass.

  controller dev     everything in one process, to try it
  controller demo    the idea in five seconds
  controller serve   the real thing

Exit codes: 0 done; 1 the answer is no (refused, not found, observed isn't as
expected); 2 it couldn't be carried out (wrong use, configuration, no
connection, failure).`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "controller",
		Short:         "Siding, a Postgres-native workflow controller",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "configuration `file` (default $SIDING_CONFIG, ./config.yaml, /etc/siding/config.yaml)")
	flags.StringSliceVar(&a.urls, "url", nil, "controller's `address`, several are tried in turn (default $SIDING_URL, http://"+config.DefaultListen+")")
	flags.StringVar(&a.token, "token", "", "access token (default $SIDING_TOKEN)")
	flags.StringVar(&a.onBehalfOf, "on-behalf-of", "", "`person` for whom this is done; recorded with decisions")
	flags.VarP(&a.format, "output", "o", "how answers are written")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })

	const server, orders, facts = "server", "orders", "facts"
	root.AddGroup(
		&cobra.Group{ID: server, Title: "Running it:"},
		&cobra.Group{ID: orders, Title: "Orders and definitions:"},
		&cobra.Group{ID: facts, Title: "Looking at it and deciding:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(server, a.serveCommand(), a.migrateCommand(), a.agentCommand(), a.devCommand(), a.demoCommand(), a.scenarioCommand(), a.benchCommand(),
		a.tokenCommand(), a.versionCommand())
	add(orders, a.applyCommand(), a.getCommand(), a.listCommand(), a.deleteCommand(), a.orderCommand(), a.attachmentCommand())
	add(facts, a.whyCommand(), a.queueCommand(), a.lineCommand(), a.pauseCommand(), a.unpauseCommand(), a.sessionCommand(),
		a.eventCommand(), a.forecastCommand())
	checkUse(root)
	return root
}

// checkUse makes wrong arguments errors of use, and commands that only hold
// others refuse words they don't know.
func checkUse(c *cobra.Command) {
	if args := c.Args; args != nil {
		c.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return cli.Usage(err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		checkUse(sub)
	}
}

// group is a command that only holds others.
func group(use, short string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			err := fmt.Errorf("unknown command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				err = fmt.Errorf("%w; did you mean %s?", err, near[0])
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(sub...)
	return c
}

// loadConfig reads the configuration; keys maps flags of the command to keys.
func (a *app) loadConfig(cmd *cobra.Command, keys map[string]string) (config.Config, error) {
	flags := map[string]*pflag.Flag{}
	for name, key := range keys {
		flags[key] = cmd.Flags().Lookup(name)
	}
	c, _, err := config.Load(config.Options{File: a.configFile, Flags: flags})
	return c, err
}

// logger makes the process's logger.
func (a *app) logger(c config.Log) *slog.Logger {
	logger := c.Logger(a.Err)
	slog.SetDefault(logger)
	return logger
}

func (a *app) printer() *cli.Printer {
	return &cli.Printer{Out: a.Out, Format: a.format, Now: time.Now()}
}

// secret returns the access token.
func (a *app) secret() string {
	if a.token != "" {
		return a.token
	}
	return os.Getenv(tokenEnv)
}

// Flags of the sections that several commands read, with the keys they set.
var (
	databaseFlags = map[string]string{"database-url": "database.url", "schema": "database.schema"}
	logFlags      = map[string]string{"log-level": "log.level", "log-format": "log.format"}
)

func addDatabaseFlags(flags *pflag.FlagSet) {
	flags.String("database-url", "", "`address` of Postgres (database.url)")
	flags.String("schema", "siding", "`name` of the schema (database.schema)")
}

func addLogFlags(flags *pflag.FlagSet) {
	flags.String("log-level", "info", "debug, info, warn or error (log.level)")
	flags.String("log-format", "text", "text or json (log.format)")
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
