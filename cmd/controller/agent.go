package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/agent"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
)

func (a *app) agentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run orders for a controller; needs no access to the database",
		Long: `Asks the controllers for orders and runs their jobs as processes of this
machine, each in a process group and a private directory of its own. One agent
per state directory; after a crash the next start ends what the last one left.

The first signal lets running jobs go on for agent.drain_timeout.`,
		Example: `  SIDING_AGENT_TOKEN=siding_... controller agent --name a1 --url https://siding.example.com --processes 4`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd, merge(logFlags, map[string]string{
				"name": "agent.name", "url": "agent.urls", "token": "agent.token", "processes": "agent.processes",
				"state-dir": "agent.state_dir", "work-dir": "agent.work_dir",
			}))
			if err != nil {
				return cli.Usage(err)
			}
			if c.Agent.Token == "" {
				c.Agent.Token = a.secret()
			}
			if err := c.ValidateAgent(); err != nil {
				return cli.Usage(err)
			}
			return runAgent(cmd.Context(), c.Agent, a.logger(c.Log))
		},
	}
	flags := c.Flags()
	flags.String("name", "", "`name` of the agent's definition (agent.name)")
	flags.Int("processes", 1, "`number` of orders run at once (agent.processes)")
	flags.String("state-dir", "", "`directory` that this agent keeps across restarts (agent.state_dir)")
	flags.String("work-dir", "", "`directory` for the jobs' private directories (agent.work_dir)")
	addLogFlags(flags)
	return c
}

// runAgent works until ctx ends.
func runAgent(ctx context.Context, c config.Agent, logger *slog.Logger) error {
	runtime, err := c.Runtime(logger)
	if err != nil {
		return cli.Usage(err)
	}
	controller, err := client.NewAgent(client.Config{URLs: c.URLs, Token: c.Token})
	if err != nil {
		return cli.Usage(err)
	}
	worker, err := agent.New(runtime, controller)
	if err != nil {
		return cli.Usage(err)
	}
	return worker.Run(ctx)
}
