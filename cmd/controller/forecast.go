package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/forecast"
)

func (a *app) forecastCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "forecast agent|lock NAME", Short: "Say in which order a lock or an agent would take the orders that wait for it", Args: cobra.ExactArgs(2),
		Long: `Says what the next picks of a resource would be, by the real rule, if each were
to end at once and nothing else happened. It works on the configured database,
in a transaction that is rolled back; meanwhile the resource gives nothing to
anybody else.`,
		ValidArgs: []string{"agent", "lock"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "agent" && args[0] != "lock" {
				return cli.Usage(fmt.Errorf("%q is neither agent nor lock", args[0]))
			}
			config, err := a.loadConfig(cmd, databaseFlags)
			if err == nil {
				err = config.ValidateDatabase()
			}
			if err != nil {
				return cli.Usage(err)
			}
			d, err := db.Open(cmd.Context(), config.Database.DB())
			if err != nil {
				return err
			}
			defer d.Close()
			picks, err := forecast.New(d).Of(cmd.Context(), args[0], args[1], limit)
			if err != nil {
				return err
			}
			t := cli.Table{Header: []string{"no", "order", "ref", "queue"}, Empty: "nobody would get it"}
			for i, p := range picks {
				t.Row(i+1, p.Order, p.Ref, p.Queue)
			}
			return a.printer().Print(picks, t)
		},
	}
	c.Flags().IntVar(&limit, "limit", 50, "most picks, up to 1000")
	addDatabaseFlags(c.Flags())
	return c
}
