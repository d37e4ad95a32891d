package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/server"
)

func (a *app) serveCommand() *cobra.Command {
	var migrate bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a controller; any number of them can work on one database",
		Long: `Serves the REST API and does what a controller does: gives orders to agents,
opens gates, recovers what was lost. All controllers of a database are equal.

The first signal ends it in order: agents that wait are sent to another
controller, requests under way get their answers.`,
		Example: `  SIDING_DATABASE_URL=postgres://siding@db/siding controller serve --listen 0.0.0.0:8420`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd, merge(databaseFlags, logFlags, map[string]string{
				"listen": "server.listen", "tls-cert": "server.tls_cert", "tls-key": "server.tls_key", "dev-loopback": "auth.dev_loopback",
			}))
			if err != nil {
				return cli.Usage(err)
			}
			if err := c.Validate(); err != nil {
				return cli.Usage(err)
			}
			version, _, _ := buildVersion()
			s, err := server.Open(cmd.Context(), c, server.Options{Migrate: migrate, Version: version, Logger: a.logger(c.Log)})
			if err != nil {
				return err
			}
			return runServer(cmd.Context(), s)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&migrate, "migrate", false, "bring the schema to this binary's version first")
	flags.String("listen", "127.0.0.1:8420", "`host:port` of the API (server.listen)")
	flags.String("tls-cert", "", "PEM `file` with the certificate (server.tls_cert)")
	flags.String("tls-key", "", "PEM `file` with the key (server.tls_key)")
	flags.Bool("dev-loopback", false, "let everybody on this machine in without a token (auth.dev_loopback)")
	addDatabaseFlags(flags)
	addLogFlags(flags)
	return c
}

// runServer runs a server to its end and closes it.
func runServer(ctx context.Context, s *server.Server) error {
	return errors.Join(s.Run(ctx), s.Close())
}
