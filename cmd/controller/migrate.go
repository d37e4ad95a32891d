package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/server"
)

func (a *app) migrateCommand() *cobra.Command {
	c := group("migrate", "Bring the database's schema to this binary's version, or back", a.migrateUpCommand(), a.migrateDownCommand(), a.migrateStatusCommand())
	addDatabaseFlags(c.PersistentFlags())
	return c
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Apply what is missing; safe while other controllers run or do the same", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := a.migration(cmd, a.Err)
			if err != nil {
				return err
			}
			if err := db.Migrate(cmd.Context(), m); err != nil {
				return err
			}
			return a.printStatus(cmd, m)
		},
	}
}

func (a *app) migrateDownCommand() *cobra.Command {
	var to int64
	var yes bool
	c := &cobra.Command{
		Use: "down", Short: "Undo migrations; the data in what they made is lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to < 0 {
				return cli.Usage(fmt.Errorf("--to %d: versions begin at 0, which is nothing", to))
			}
			if !yes {
				return cli.Usage(fmt.Errorf("this deletes data: say --yes to undo all migrations above version %d", to))
			}
			m, err := a.migration(cmd, a.Err)
			if err != nil {
				return err
			}
			if err := db.MigrateDown(cmd.Context(), m, to); err != nil {
				return err
			}
			return a.printStatus(cmd, m)
		},
	}
	c.Flags().Int64Var(&to, "to", 0, "`version` to go back to; 0 undoes all")
	c.Flags().BoolVar(&yes, "yes", false, "really")
	if err := c.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	return c
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what is applied; changes nothing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := a.migration(cmd, io.Discard)
			if err != nil {
				return err
			}
			return a.printStatus(cmd, m)
		},
	}
}

// migration is what the migrate commands work on. Progress is logged to w.
func (a *app) migration(cmd *cobra.Command, w io.Writer) (db.MigrateConfig, error) {
	c, err := a.loadConfig(cmd, databaseFlags)
	if err == nil {
		err = c.ValidateDatabase()
	}
	if err != nil {
		return db.MigrateConfig{}, cli.Usage(err)
	}
	return server.Migration(c.Database, c.Log.Logger(w))
}

func (a *app) printStatus(cmd *cobra.Command, m db.MigrateConfig) error {
	status, err := db.MigrateStatus(cmd.Context(), m)
	if err != nil {
		return err
	}
	type migration struct {
		Version   int64  `json:"version"`
		File      string `json:"file"`
		AppliedAt any    `json:"applied_at"`
	}
	answer := struct {
		Schema          string      `json:"schema"`
		Current         int64       `json:"current"`
		Target          int64       `json:"target"`
		RoutinesCurrent bool        `json:"routines_current"`
		Migrations      []migration `json:"migrations"`
	}{m.Schema.Name(), status.Current, status.Target, status.RoutinesCurrent, []migration{}}
	p := a.printer()
	table := cli.Table{Header: []string{"version", "file", "applied"}}
	for _, one := range status.Migrations {
		row := migration{Version: one.Version, File: one.File}
		if !one.AppliedAt.IsZero() {
			row.AppliedAt = one.AppliedAt
		}
		answer.Migrations = append(answer.Migrations, row)
		table.Row(one.Version, one.File, p.Time(&one.AppliedAt))
	}
	routines := "current"
	if !status.RoutinesCurrent {
		routines = "not this binary's"
	}
	table.Foot = fmt.Sprintf("schema %s: version %d of %d, routines %s", m.Schema.Name(), status.Current, status.Target, routines)
	return p.Print(answer, table)
}
