package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

const example = "../../config.example.yaml"

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExampleHasEveryKeyAndItsDefault(t *testing.T) {
	t.Parallel()
	got, file, err := Load(Options{File: example})
	if err != nil {
		t.Fatal(err)
	}
	if file != example {
		t.Errorf("read %q", file)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("the example differs from the defaults (-default +example):\n%s", diff)
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, key := range Keys() {
		section, name, _ := strings.Cut(key, ".")
		inside, found := false, false
		for i, line := range lines {
			if line != "" && line[0] != ' ' && line[0] != '#' {
				inside = line == section+":"
			}
			if inside && strings.HasPrefix(line, "  "+name+":") {
				found = true
				// A comment of its own, or one shared with the keys directly above.
				if above := strings.TrimSpace(lines[i-1]); above == "" || above == section+":" {
					t.Errorf("%s has no comment", key)
				}
			}
		}
		if !found {
			t.Errorf("%s isn't in the example", key)
		}
	}
}

func TestNoFileGivesTheDefaults(t *testing.T) {
	t.Parallel()
	got, file, err := Load(Options{usual: []string{filepath.Join(t.TempDir(), "config.yaml")}})
	if err != nil || file != "" {
		t.Fatalf("file %q, error %v", file, err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("-default +loaded:\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	got, _, err := Load(Options{usual: []string{write(t, "config.yaml", `
database: {url: "postgres://db/siding", prepared_statements: false, statement_timeout: 1m30s}
auth:
  tokens:
    - {name: ci, role: submitter, sha256: aa}
attachments: {max_size: 4096, retention: 90d}
sessions: {ttl: 1d}
agent: {urls: [http://b, http://c], output_cap: 64KiB}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Database.URL, want.Database.PreparedStatements, want.Database.StatementTimeout = "postgres://db/siding", false, 90*time.Second
	want.Auth.Tokens = []Token{{Name: "ci", Role: "submitter", SHA256: "aa"}}
	want.Attachments = Attachments{MaxSize: 4096, Retention: 90 * 24 * time.Hour}
	want.Sessions.TTL = 24 * time.Hour
	want.Agent.URLs = []string{"http://b", "http://c"}
	want.Agent.OutputCap = 64 << 10
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Environment variables belong to the whole process, so this test runs alone.
func TestPrecedence(t *testing.T) {
	file := write(t, "other.yaml", "database: {schema: from_file, url: postgres://file/x}\nserver: {listen: 'file:1'}\n")
	t.Setenv(FileEnv, file)
	t.Setenv("SIDING_DATABASE_URL", "postgres://env/x")
	t.Setenv("SIDING_SERVER_LISTEN", "env:1")
	t.Setenv("SIDING_AGENT_URLS", "http://a,http://b")
	t.Setenv("SIDING_AUTH_TOKENS", "ci:viewer:aa, ops:admin:bb")
	t.Setenv("SIDING_AGENT", "set in every job, no key")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	listen := flags.String("listen", "default:1", "")
	flags.Int("processes", 7, "")
	if err := flags.Set("listen", "flag:1"); err != nil {
		t.Fatal(err)
	}
	got, read, err := Load(Options{Flags: map[string]*pflag.Flag{
		"server.listen": flags.Lookup("listen"), "agent.processes": flags.Lookup("processes"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Database.Schema = "from_file"
	want.Database.URL = "postgres://env/x"
	want.Server.Listen = *listen
	want.Agent.URLs = []string{"http://a", "http://b"}
	want.Auth.Tokens = []Token{{"ci", "viewer", "aa"}, {"ops", "admin", "bb"}}
	if diff := cmp.Diff(want, got); diff != "" || read != file {
		t.Errorf("read %s; -want +got:\n%s", read, diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown keys, all named": {"database: {ulr: x}\nsevrer: {listen: y}\nlog: {level: warn}\n",
			[]string{"database.ulr: unknown key; did you mean database.url?", "sevrer.listen: unknown key; did you mean server.listen?"}},
		"nothing near":      {"telemetry: {endpoint: x}\n", []string{"telemetry.endpoint: unknown key; config.example.yaml lists all"}},
		"a duration":        {"sessions: {ttl: soon}\n", []string{"sessions.ttl", "soon"}},
		"without a unit":    {"sessions: {ttl: 60}\n", []string{"sessions.ttl", "60 is not a duration; write it with a unit"}},
		"negative":          {"sessions: {ttl: -1s}\n", []string{"sessions.ttl", "can't be negative"}},
		"a size":            {"agent: {output_cap: big}\n", []string{"agent.output_cap", `"big" is not a size`}},
		"a number":          {"agent: {processes: many}\n", []string{"agent.processes"}},
		"two wrong":         {"agent: {processes: many}\nsessions: {ttl: soon}\n", []string{"agent.processes", "sessions.ttl"}},
		"field of a token":  {"auth: {tokens: [{name: a, role: viewer, hash: x}]}\n", []string{"auth.tokens", "hash"}},
		"no YAML":           {"database: [\n", []string{"config.yaml"}},
		"section as a text": {"database: postgres://x\n", []string{"database: unknown key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(Options{File: write(t, "config.yaml", c.text)})
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q doesn't say %q", err, part)
				}
			}
		})
	}
	if _, _, err := Load(Options{File: filepath.Join(t.TempDir(), "missing.yaml")}); err == nil {
		t.Error("a named file that isn't there was accepted")
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Bool("x", false, "")
	if _, _, err := Load(Options{Flags: map[string]*pflag.Flag{"no.key": flags.Lookup("x")}}); err == nil {
		t.Error("a flag for no key was accepted")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0f", 32)
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string // the keys named, in order
	}{
		"nothing wrong": {func(*Config) {}, nil},
		"a token":       {func(c *Config) { c.Auth.Tokens = []Token{{"a", "admin", hash}} }, nil},
		"dev mode": {func(c *Config) {
			c.Auth.DevLoopback, c.Server.Listen = true, "[::1]:8420"
		}, nil},
		"database": {func(c *Config) {
			c.Database = Database{URL: "postgres://%zz", ListenURL: "postgres://%zz", Schema: "No Schema"}
		}, []string{"database.url", "database.listen_url", "database.schema", "database.max_connections",
			"database.statement_timeout", "database.transaction_timeout", "database.connect_timeout"}},
		"no database": {func(c *Config) { c.Database.URL = "" }, []string{"database.url"}},
		"server": {func(c *Config) {
			c.Server = Server{Listen: "8420", TLSCert: "x", ShutdownTimeout: -1}
		}, []string{"server.listen", "server.tls_key", "server.shutdown_timeout"}},
		"key without certificate": {func(c *Config) { c.Server.TLSKey = "x" }, []string{"server.tls_cert"}},
		"tokens": {func(c *Config) {
			c.Auth.Tokens = []Token{{"", "boss", "xyz"}, {"a", "admin", hash}, {"a", "admin", hash[2:]}}
		}, []string{"auth.tokens[0].name", "auth.tokens[0].role", "auth.tokens[0].sha256", "auth.tokens[2].name", "auth.tokens[2].sha256"}},
		"open to others without a token": {func(c *Config) {
			c.Auth.DevLoopback, c.Server.Listen = true, "0.0.0.0:8420"
		}, []string{"auth.dev_loopback"}},
		"dev mode on every address": {func(c *Config) {
			c.Auth.DevLoopback, c.Server.Listen = true, ":8420"
		}, []string{"auth.dev_loopback"}},
		"sessions":    {func(c *Config) { c.Sessions = Sessions{TTL: time.Second, Heartbeat: 6 * time.Second} }, []string{"sessions.heartbeat", "sessions.ttl"}},
		"no heart":    {func(c *Config) { c.Sessions.Heartbeat = 0 }, []string{"sessions.heartbeat"}},
		"attachments": {func(c *Config) { c.Attachments = Attachments{Retention: time.Second} }, []string{"attachments.max_size", "attachments.retention"}},
		"log":         {func(c *Config) { c.Log = Log{"loud", "xml"} }, []string{"log.level", "log.format"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Default()
			config.Database.URL = "postgres://db/siding"
			c.change(&config)
			if diff := cmp.Diff(c.want, keysOf(config.Validate())); diff != "" {
				t.Errorf("%v; keys -want +got:\n%s", config.Validate(), diff)
			}
		})
	}
}

func TestValidateAgent(t *testing.T) {
	t.Parallel()
	config := Default()
	config.Agent = Agent{URLs: []string{"localhost:1", "ftp://x"}, Unreachable: "panic"}
	want := []string{"agent.name", "agent.urls", "agent.urls", "agent.processes", "agent.output_cap", "agent.grace", "agent.unreachable"}
	if diff := cmp.Diff(want, keysOf(config.ValidateAgent())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	config = Default()
	config.Agent.Name = "a1"
	if err := config.ValidateAgent(); err != nil {
		t.Error(err)
	}
	config.Agent.StateDir = t.TempDir()
	runtime, err := config.Agent.Runtime(config.Log.Logger(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.WithDefaults().Validate(); err != nil {
		t.Errorf("the agent refuses the defaults: %v", err)
	}
}

// keysOf returns what stands before the first colon of each joined error.
func keysOf(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var keys []string
	for _, one := range joined.Unwrap() {
		key, _, _ := strings.Cut(one.Error(), ":")
		keys = append(keys, key)
	}
	return keys
}
