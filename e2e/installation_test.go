package e2e_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/siding-dev/siding/client"
)

// installation is a database with controllers and agents.
type installation struct {
	t    *testing.T
	dir  string // of the configuration and the logs
	pool *pgxpool.Pool

	urls        []string
	controllers []*process
	agents      map[string]*process
}

// secret is the token of a role.
func secret(role string) string { return "e2e-secret-of-the-" + role }

// install migrates a database of its own and starts controllers on it.
func install(t *testing.T, controllers int) *installation {
	t.Helper()
	if testing.Short() {
		t.Skip("end to end: not in -short")
	}
	s := &installation{t: t, dir: t.TempDir(), agents: map[string]*process{}}
	t.Cleanup(func() { showLogs(t, s.dir) })
	url := emptyDatabase(t)

	var config strings.Builder
	fmt.Fprintf(&config, "database: {url: %q}\nsessions: {ttl: 20s, heartbeat: 1s}\nauth:\n  tokens:\n", url)
	for _, role := range []string{"viewer", "submitter", "operator", "agent", "admin"} {
		fmt.Fprintf(&config, "    - {name: e2e-%s, role: %s, sha256: %x}\n", role, role, sha256.Sum256([]byte(secret(role))))
	}
	if err := os.WriteFile(s.config(), []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.agentConfig(), []byte("agent: {grace: 2s, drain_timeout: 30s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "migrate", "up", "--config", s.config()).CombinedOutput(); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.pool = pool

	for range controllers {
		s.urls = append(s.urls, "http://"+freeAddress(t))
	}
	s.controllers = make([]*process, controllers)
	for n := range controllers {
		s.startController(n)
	}
	return s
}

func (s *installation) config() string      { return filepath.Join(s.dir, "config.yaml") }
func (s *installation) agentConfig() string { return filepath.Join(s.dir, "agent.yaml") }

// startController starts a controller and waits until it takes requests.
func (s *installation) startController(n int) {
	s.t.Helper()
	listen := strings.TrimPrefix(s.urls[n], "http://")
	p := spawn(s.t, fmt.Sprintf("controller%d", n+1), s.dir, nil, "serve", "--config", s.config(), "--listen", listen)
	s.controllers[n] = p
	c := s.client("", n)
	await(s.t, p.name+" is ready", func() bool {
		if !p.running() {
			s.t.Fatalf("%s has ended: %v", p.name, p.err)
		}
		return c.Ready(s.t.Context()) == nil
	})
}

// client is a client with the token of a role. It asks the given controllers in
// this order, all if none is given.
func (s *installation) client(role string, controllers ...int) *client.Client {
	s.t.Helper()
	config := client.Config{URLs: s.urls}
	if len(controllers) > 0 {
		config.URLs = nil
		for _, n := range controllers {
			config.URLs = append(config.URLs, s.urls[n])
		}
	}
	if role != "" {
		config.Token = secret(role)
	}
	c, err := client.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// startAgent starts an agent and waits until it has a session; it returns its
// number. The first controller that the agent asks is the given one.
func (s *installation) startAgent(name string, processes, first int) int64 {
	s.t.Helper()
	before := s.session(name)
	args := []string{
		"agent", "--name", name, "--processes", fmt.Sprint(processes),
		"--state-dir", filepath.Join(s.dir, "state-"+name), "--log-level", "info",
	}
	for n := range s.urls {
		args = append(args, "--url", s.urls[(first+n)%len(s.urls)])
	}
	// An agent doesn't know the address of the database.
	env := []string{"SIDING_AGENT_TOKEN=" + secret("agent")}
	p := spawn(s.t, name, s.dir, env, append(args, "--config", s.agentConfig())...)
	s.agents[name] = p
	var session int64
	await(s.t, name+" has a session", func() bool {
		if !p.running() {
			s.t.Fatalf("%s has ended: %v", name, p.err)
		}
		session = s.session(name)
		return session > before
	})
	return session
}

// session is the newest session of an agent that hasn't ended, 0 if there is
// none.
func (s *installation) session(agent string) int64 {
	s.t.Helper()
	page, err := s.client("viewer").Sessions(s.t.Context(), agent, false, "", 1)
	if err != nil {
		s.t.Fatalf("sessions of %s: %v", agent, err)
	}
	if len(page.Sessions) == 0 {
		return 0
	}
	return page.Sessions[0].ID
}

// apply applies definitions.
func (s *installation) apply(documents string) {
	s.t.Helper()
	if _, err := s.client("operator").Apply(s.t.Context(), []byte(documents)); err != nil {
		s.t.Fatalf("apply: %v", err)
	}
}

// order reads an order.
func (s *installation) order(c *client.Client, name string) client.Order {
	s.t.Helper()
	o, err := c.Order(s.t.Context(), name)
	if err != nil {
		s.t.Fatalf("order %s: %v", name, err)
	}
	return o
}

// awaitState waits until an order is in a state.
func (s *installation) awaitState(c *client.Client, name, state string) client.Order {
	s.t.Helper()
	var o client.Order
	awaitFor(s.t, patience, func() string {
		why, err := c.Why(s.t.Context(), name)
		return fmt.Sprintf("%s is %s; it is %s (%s), and waits for%s (%v)", name, state, o.State, o.Word, obstacles(why), err)
	}, func() bool {
		o = s.order(c, name)
		return o.State == state
	})
	return o
}

// awaitWhy waits until an order waits for exactly one thing.
func (s *installation) awaitWhy(c *client.Client, name, code, subject string) {
	s.t.Helper()
	var why client.Why
	awaitFor(s.t, patience, func() string {
		return fmt.Sprintf("%s waits for %s %s alone; it is %s and waits for%s", name, code, subject, why.State, obstacles(why))
	}, func() bool {
		var err error
		if why, err = c.Why(s.t.Context(), name); err != nil {
			s.t.Fatalf("why %s: %v", name, err)
		}
		return len(why.Obstacles) == 1 && why.Obstacles[0].Code == code && why.Obstacles[0].Subject == subject
	})
}

func obstacles(why client.Why) string {
	text := " nothing"
	for i, o := range why.Obstacles {
		if i == 0 {
			text = ""
		}
		text += fmt.Sprintf(" %s %s %s", o.Code, o.Subject, o.Numbers)
	}
	return text
}

// rows runs a query and returns its rows as text.
func (s *installation) rows(sql string, args ...any) []string {
	s.t.Helper()
	found, err := s.pool.Query(s.t.Context(), `SELECT x::text FROM (`+sql+`) x`, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// problem is what the controller refused with.
func problem(err error) (client.Problem, bool) {
	var p *client.Problem
	if !errors.As(err, &p) {
		return client.Problem{}, false
	}
	return *p, true
}
