package api_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/token"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a small installation: an agent, queues, and workflows.
const world = `
kind: queue
name: Q1
capacity: 5
penalty: 2
---
kind: agent
name: a1
processes: 4
queues: [Q1]
---
kind: workflow
name: free
ordering: independent
steps: [{job: go, noop: true, agent: a1}]
---
kind: workflow
name: keyed
ordering: {key: order}
steps: [{job: go, noop: true, agent: a1}]
---
kind: workflow
name: scanned
ordering: independent
attachments: [{name: scan}]
steps: [{job: go, noop: true, agent: a1}]
`

// bundle is a server on a database of its own.
type bundle struct {
	db  *db.DB
	url string
	t   *testing.T
}

// secret is the token of a role.
func secret(role token.Role) string { return "secret-of-" + string(role) }

func configTokens() map[string]api.ConfigToken {
	tokens := map[string]api.ConfigToken{}
	for _, role := range token.Roles() {
		hash := token.Hash(secret(role))
		tokens["t-"+string(role)] = api.ConfigToken{Role: role, SHA256: hex.EncodeToString(hash[:])}
	}
	return tokens
}

// deps are those of a server as the program wires it.
func deps(t *testing.T, d *db.DB) api.Deps {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	quiet := slog.New(slog.DiscardHandler)
	controller := dispatch.New(d, dispatch.Config{Logger: quiet})
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return api.Deps{
		DB: d, Controller: controller, Orders: order.New(d, controller), Catalog: catalog.New(d, controller),
		Attachments: attachment.New(d, controller), Metrics: prometheus.NewRegistry(), Tokens: configTokens(), Logger: quiet,
	}
}

// setup starts a server with the world applied.
func setup(t *testing.T) *bundle {
	t.Helper()
	d := dbtest.New(t)
	server := httptest.NewServer(api.New(deps(t, d)))
	t.Cleanup(server.Close)
	b := &bundle{db: d, url: server.URL, t: t}
	if _, err := b.client(token.Admin).Apply(t.Context(), []byte(world)); err != nil {
		t.Fatalf("apply: %v", err)
	}
	return b
}

// client is one with the token of a role.
func (b *bundle) client(role token.Role) *client.Client {
	b.t.Helper()
	c, err := client.New(client.Config{URLs: []string{b.url}, Token: secret(role)})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// problem decodes a problem document.
func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	var p api.Problem
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("status %d, Content-Type %q, body %q: no problem document", a.status, got, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("problem %q: %v", a.body, err)
	}
	if p.Status != a.status {
		t.Errorf("the problem says status %d, the answer %d", p.Status, a.status)
	}
	if p.Type == "" || p.Title == "" || p.Code == "" {
		t.Errorf("problem lacks type, title or code: %s", a.body)
	}
	return p
}

// do makes one request; headers as "Name: value".
func (b *bundle) do(role token.Role, method, path string, body io.Reader, headers ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if role != "" {
		req.Header.Set("Authorization", "Bearer "+secret(role))
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return b.send(req)
}

func (b *bundle) send(req *http.Request) answer {
	b.t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

// fingerprint is a digest of every row of every table, but for traces of uploads
// that came to nothing: the record that they were there, and when the attachment
// was touched.
func (b *bundle) fingerprint() string {
	b.t.Helper()
	var tables []string
	err := b.db.Pool.QueryRow(b.t.Context(), b.db.SQL(`
		SELECT array_agg(c.oid::regclass::text ORDER BY c.relname) FROM pg_class c
		WHERE c.relkind = 'r' AND c.relnamespace = $1::regnamespace AND c.relname NOT IN ('key_stripes', 'uploads')`), b.db.Schema.Name()).Scan(&tables)
	if err != nil {
		b.t.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		var digest string
		err := b.db.Pool.QueryRow(b.t.Context(),
			`SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '')
			 FROM (SELECT to_jsonb(t) - 'changed_at' AS t FROM `+table+` t) t`).Scan(&digest)
		if err != nil {
			b.t.Fatal(err)
		}
		all.WriteString(table + " " + digest + "\n")
	}
	return all.String()
}

// await waits until a statement says true.
func (b *bundle) await(what, statement string, args ...any) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var done bool
		if err := b.db.Pool.QueryRow(b.t.Context(), statement, args...).Scan(&done); err != nil {
			b.t.Fatalf("await that %s: %v", what, err)
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain that %s", what)
		}
		runtime.Gosched()
	}
}
