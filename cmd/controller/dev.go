package main

import (
	"context"
	_ "embed" // the default definitions
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/db/embedded"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/server"
)

//go:embed dev.yaml
var devDefinitions []byte

// devAgent is the agent that runs inside `controller dev`.
const devAgent = "a1"

func (a *app) devCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Try Siding: a controller with an agent and a private Postgres",
		Long: `Runs a controller and an agent named a1 in one process, on a private Postgres
made from the binaries on this machine. The data stays in .siding for the next
start. Only this machine can reach it, and needs no token: nothing here is for
production.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig(cmd, merge(logFlags, map[string]string{"listen": "server.listen"}))
			if err != nil {
				return cli.Usage(err)
			}
			// Of the configuration dev mode takes what can't harm.
			own := config.Default()
			own.Server.Listen, own.Log, own.Sessions = c.Server.Listen, c.Log, c.Sessions
			own.Auth.DevLoopback = true
			if !cmd.Flags().Changed("log-level") {
				own.Log.Level = "warn"
			}
			if dir == "" {
				if dir, err = devDir(); err != nil {
					return err
				}
			}
			return a.dev(cmd.Context(), own, dir)
		},
	}
	c.Flags().StringVar(&dir, "data", "", "`directory` of the data (default .siding)")
	c.Flags().String("listen", config.DefaultListen, "loopback `host:port` of the API (server.listen)")
	addLogFlags(c.Flags())
	return c
}

func (a *app) dev(ctx context.Context, c config.Config, dir string) (err error) {
	logger := a.logger(c.Log)
	c.Database.URL = "postgres:///" // not known yet
	if err := c.Validate(); err != nil {
		return cli.Usage(err)
	}
	if err := makeDevDir(dir); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "starting Postgres in %s\n", dir)
	pg, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
	c.Database.URL = pg.URL("postgres")
	version, _, _ := buildVersion()
	s, err := server.Open(ctx, c, server.Options{Migrate: true, Version: version, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := applyDefaults(ctx, s); err != nil {
		return err
	}
	worker, err := agent.New(agent.Config{
		Name: devAgent, Processes: 4, StateDir: filepath.Join(dir, "agents", devAgent), DrainTimeout: 5 * time.Second, Logger: logger,
	}, s.Controller())
	if err != nil {
		return err
	}
	printWelcome(a.Out, os.Args[0], s.URL(), c.Database.URL)

	// The agent's last reports need the server, so that ends after it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(serving) })
	group.Go(func() error {
		defer stop()
		return worker.Run(both)
	})
	group.Go(func() error {
		select {
		case <-both.Done():
			return nil
		case <-pg.Exited():
			return fmt.Errorf("the private Postgres has ended; its log ends: %s", pg.Log())
		}
	})
	return group.Wait()
}

// applyDefaults applies the default definitions to a database that has none.
func applyDefaults(ctx context.Context, s *server.Server) error {
	for _, kind := range definition.Kinds() {
		there, err := s.Catalog().List(ctx, kind)
		if err != nil {
			return err
		}
		if len(there) > 0 {
			return nil
		}
	}
	docs, err := definition.Parse("dev.yaml", devDefinitions)
	if err != nil {
		return err
	}
	_, err = s.Catalog().Apply(ctx, docs, "dev")
	return err
}

func printWelcome(w io.Writer, program, address, database string) {
	option := ""
	if address != "http://"+config.DefaultListen {
		option = " --url " + address
	}
	fmt.Fprintf(w, `
Siding runs at %[1]s (Ctrl-C ends it; the data stays).
In another terminal:

  %[4]s order add%[2]s --workflow hello --arg name=Ada
  %[4]s order add%[2]s --workflow intake --arg customer=C1 --ref J1
  %[4]s why%[2]s ref:J1
  %[4]s attachment put%[2]s ref:J1 scan README.md
  %[4]s order list%[2]s

The API describes itself at %[1]s/openapi.json; the database is at
%[3]s

`, address, option, database, program)
}

// devDir is where the data stays: .siding, unless we are root and the user that
// Postgres then runs as can't get there.
func devDir() (string, error) {
	dir, err := filepath.Abs(".siding")
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	if os.Geteuid() != 0 {
		return dir, nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return "", fmt.Errorf("data directory: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			name := fnv.New32a()
			name.Write([]byte(dir))
			elsewhere := fmt.Sprintf("/var/lib/siding/dev-%08x", name.Sum32())
			slog.Debug("data directory is elsewhere", "because", parent, "dir", elsewhere)
			return elsewhere, nil
		}
		if parent == filepath.Dir(parent) {
			return dir, nil
		}
	}
}

// makeDevDir makes the directory so that the user that Postgres runs as, if we
// are root, can get to its part of it.
func makeDevDir(dir string) error {
	_, err := os.Stat(dir)
	if err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // whatever the umask is
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}
