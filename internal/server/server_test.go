package server_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/server"
	"github.com/siding-dev/siding/internal/token"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	operatorSecret = "a token of a person"
	agentSecret    = "a token of an agent"
)

// testBundle is a running controller.
type testBundle struct {
	server *server.Server
	person *client.Client
	agent  *client.Agent
	// stop ends Run and returns what it returned.
	stop func() error
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func testConfig(url string) config.Config {
	c := config.Default()
	c.Database.URL = url
	c.Server.Listen = "127.0.0.1:0"
	for name, one := range map[string]struct {
		role   token.Role
		secret string
	}{"ops": {token.Operator, operatorSecret}, "a1": {token.Agent, agentSecret}} {
		hash := token.Hash(one.secret)
		c.Auth.Tokens = append(c.Auth.Tokens, config.Token{Name: name, Role: string(one.role), SHA256: hex.EncodeToString(hash[:])})
	}
	return c
}

func setup(t *testing.T, url string) testBundle {
	t.Helper()
	s, err := server.Open(t.Context(), testConfig(url), server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	b := testBundle{server: s}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	b.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-done, s.Close())
	}
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	urls := []string{s.URL()}
	if b.person, err = client.New(client.Config{URLs: urls, Token: operatorSecret}); err != nil {
		t.Fatal(err)
	}
	if b.agent, err = client.NewAgent(client.Config{URLs: urls, Token: agentSecret}); err != nil {
		t.Fatal(err)
	}
	if err := b.person.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

const definitions = `
kind: agent
name: a1
type: standalone
processes: 2
---
kind: workflow
name: w
ordering: {key: order}
defaults: {agent: a1}
steps:
  - {job: work, run: "true"}
`

func claim(t *testing.T, b testBundle, session protocol.SessionID, slots int) []protocol.Lease {
	t.Helper()
	leases, err := b.agent.Claim(t.Context(), protocol.ClaimRequest{
		Session: session, RequestID: uuid.NewString(), Slots: slots, WaitMillis: 20_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

func TestAnOrderFromAddingToItsEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := setup(t, dbtest.New(t).Config().URL)
	if _, err := b.person.Apply(ctx, []byte(definitions)); err != nil {
		t.Fatal(err)
	}
	session, err := b.agent.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.person.AddMany(ctx, []client.NewOrder{
		{Workflow: "w", Ref: "J1", Key: "C1", Attachments: []client.NewAttachment{{Name: "scan"}}},
		{Workflow: "w", Ref: "J2", Key: "C2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var started []string
	run := func() {
		for _, lease := range claim(t, b, session.ID, 1) {
			started = append(started, lease.Ref)
			results, err := b.agent.Report(ctx, session.ID, []protocol.Report{{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded}})
			if err != nil || len(results) != 1 || !results[0].Accepted {
				t.Fatalf("report: %+v, %v", results, err)
			}
		}
	}
	run()
	if _, err := b.person.Upload(ctx, "ref:J1", "scan", strings.NewReader("bytes"), 5); err != nil {
		t.Fatal(err)
	}
	run()
	if diff := cmp.Diff([]string{"J2", "J1"}, started); diff != "" {
		t.Errorf("started -want +got:\n%s", diff)
	}
	for _, ref := range started {
		o, err := b.person.Order(ctx, "ref:"+ref)
		if err != nil || o.State != "finished" {
			t.Errorf("%s is %s, %v", ref, o.State, err)
		}
	}
}

// An agent that waits for work is sent away, and not told to give up.
func TestStoppingEndsLongPolls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := setup(t, dbtest.New(t).Config().URL)
	if _, err := b.person.Apply(ctx, []byte(definitions)); err != nil {
		t.Fatal(err)
	}
	session, err := b.agent.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 2})
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := b.agent.Claim(ctx, protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 1, WaitMillis: 60_000})
		answer <- err
	}()
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	err = <-answer
	if err == nil || errors.Is(err, protocol.ErrRefused) || errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("the claim ended with %v, want an error that makes the agent ask again", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := b.person.Ready(ctx); err == nil {
		t.Error("it still answers")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.New(t).Config().URL)
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"none": {"", http.StatusUnauthorized}, "unknown": {"nobody's", http.StatusUnauthorized},
		"agent": {agentSecret, http.StatusForbidden}, "operator": {operatorSecret, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, err := client.New(client.Config{URLs: []string{b.server.URL()}, Token: c.token})
			if err != nil {
				t.Fatal(err)
			}
			_, err = other.Definitions(t.Context(), client.Queue)
			var problem *client.Problem
			got := 0
			if errors.As(err, &problem) {
				got = problem.Status
			} else if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	scenario := dbtest.New(t, dbtest.WithScenarioClock()).Config().URL
	for name, c := range map[string]struct {
		config  config.Config
		migrate bool
		want    string
	}{
		"a schema that isn't there":    {testConfig(dbtest.EmptyURL(t)), false, "controller migrate up"},
		"the clock of scenarios":       {testConfig(scenario), false, "stands still"},
		"a configuration that's wrong": {config.Default(), false, "database.url"},
		"an address that isn't ours": {func() config.Config {
			c := testConfig(dbtest.New(t).Config().URL)
			c.Server.Listen = "192.0.2.1:1"
			return c
		}(), false, "server.listen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := server.Open(t.Context(), c.config, server.Options{Migrate: c.migrate, Logger: quiet()})
			if err == nil {
				t.Fatalf("opened: %v", s.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q doesn't say %q", err, c.want)
			}
		})
	}
}

func TestOpenMigrates(t *testing.T) {
	t.Parallel()
	s, err := server.Open(t.Context(), testConfig(dbtest.EmptyURL(t)), server.Options{Migrate: true, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if found, err := s.Catalog().List(t.Context(), "queue"); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// A signal can come before Run has begun to serve.
func TestRunThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := testConfig(dbtest.New(t).Config().URL)
	c.Server.ShutdownTimeout = time.Millisecond
	s, err := server.Open(t.Context(), c, server.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(s.Run(ended), s.Close()); err != nil {
		t.Errorf("a run that ends at once: %v", err)
	}
}
