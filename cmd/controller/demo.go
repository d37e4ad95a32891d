package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/demo"
	"github.com/siding-dev/siding/internal/server"
	"github.com/siding-dev/siding/internal/token"
)

// demoJobTime is how long each job of the demo takes, so that people see it run.
const demoJobTime = 800 * time.Millisecond

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show an order step onto the siding and let others pass",
		Long: `Starts a temporary Postgres, a controller, and an agent in a process of its own;
adds five orders, of which the second waits for its attachment and the fourth
is behind it by key; sends the attachment; and shows what was observed beside
what was expected.

Exit codes: 0 all agree; 1 something differs; 2 it couldn't be shown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			fmt.Fprintln(a.Err, "starting a temporary Postgres")
			pg, err := startTemporary(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stopPostgres(ctx, pg)) }()
			return a.demo(ctx, pg.URL("postgres"), demoJobTime)
		},
	}
}

// demo runs the demo on an empty database.
func (a *app) demo(ctx context.Context, database string, jobTime time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "siding-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	secrets, tokens := demoTokens()
	c := config.Default()
	c.Database.URL, c.Server.Listen, c.Auth.Tokens, c.Log.Level = database, "127.0.0.1:0", tokens, "error"
	s, err := server.Open(ctx, c, server.Options{Migrate: true, Logger: c.Log.Logger(a.Err)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	remote, err := client.New(client.Config{URLs: []string{s.URL()}, Token: secrets["person"]})
	if err != nil {
		return err
	}
	child := &childAgent{url: s.URL(), token: secrets["agent"], dir: filepath.Join(dir, "agent")}

	// The server outlives ctx until the agent has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(serving) })
	agree := false
	group.Go(func() error {
		defer stop()
		var err error
		agree, err = demo.Run(both, demo.Config{
			Controller: demoController{remote}, StartAgent: child.start, Dir: dir, JobTime: jobTime, Out: a.Out, Live: a.terminal(),
		})
		return errors.Join(err, child.stop(err != nil))
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if !agree {
		return cli.Quiet(cli.ExitNo)
	}
	return nil
}

// terminal says whether answers go to a person's screen.
func (a *app) terminal() bool {
	file, ok := a.Out.(*os.File)
	return ok && isatty.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb"
}

// demoTokens makes the tokens of a person and of the agent.
func demoTokens() (secrets map[string]string, tokens []config.Token) {
	secrets = map[string]string{}
	for name, role := range map[string]token.Role{"person": token.Operator, "agent": token.Agent} {
		secret := rand.Text()
		hash := token.Hash(secret)
		secrets[name] = secret
		tokens = append(tokens, config.Token{Name: name, Role: string(role), SHA256: hex.EncodeToString(hash[:])})
	}
	return secrets, tokens
}

// childAgent is this binary as an agent, in a process of its own.
type childAgent struct {
	url, token, dir string

	cmd *exec.Cmd
	log lockedBuffer
}

func (c *childAgent) start(context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	c.cmd = exec.Command(program, "agent", "--name", demo.AgentName, "--url", c.url, "--processes", "1", "--state-dir", c.dir)
	c.cmd.Env = append(os.Environ(), "SIDING_AGENT_TOKEN="+c.token, config.FileEnv+"="+os.DevNull)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return nil
}

// stop ends the agent, and tells its log if something went wrong.
func (c *childAgent) stop(failed bool) error {
	if c.cmd == nil || c.cmd.Process == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // perhaps it has ended already
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	err := c.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("the agent ended: %w", err)
	}
	if err != nil || failed {
		err = errors.Join(err, fmt.Errorf("log of the agent: %s", c.log.text()))
	}
	return err
}

// lockedBuffer collects what a process writes.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// demoController is a client as the demo uses it.
type demoController struct{ client *client.Client }

func (c demoController) Apply(ctx context.Context, _ string, source []byte) error {
	_, err := c.client.Apply(ctx, source)
	return err
}

func (c demoController) Add(ctx context.Context, orders []byte) error {
	_, err := c.client.AddJSON(ctx, json.RawMessage(orders))
	return err
}

func (c demoController) Orders(ctx context.Context) ([]client.Order, error) {
	page, err := c.client.Orders(ctx, client.OrderFilter{}, "", 0)
	return page.Orders, err
}

func (c demoController) Why(ctx context.Context, ref string) (client.Why, error) {
	return c.client.Why(ctx, "ref:"+ref)
}

func (c demoController) Upload(ctx context.Context, ref, name string, body io.Reader, size int64) error {
	_, err := c.client.Upload(ctx, "ref:"+ref, name, body, size)
	return err
}
