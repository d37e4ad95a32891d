package api_test

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/token"
)

// Every route that the router has declares a role, and lets exactly those in
// that have it.
func TestRoles(t *testing.T) {
	t.Parallel()
	handler, roles, s := api.Routes(deps(t, dbtest.New(t)))
	b := &bundle{t: t, url: serve(t, handler)}
	known := 0
	err := s.Walk(func(route string) {
		known++
		need, declared := roles[route]
		if !declared {
			t.Errorf("%s has no role", route)
			return
		}
		method, pattern, _ := strings.Cut(route, " ")
		path := strings.NewReplacer("{order}", "999", "{session}", "999", "{lease}", "1", "{list}", "waiting", "{kind}", "queue", "{name}", "x").Replace(pattern)
		for _, role := range append(token.Roles(), "") {
			got := b.do(role, method, path, strings.NewReader(""))
			code := ""
			if got.status >= 400 {
				code = got.problem(t).Code
			}
			want := ""
			switch {
			case need == api.Public:
			case role == "":
				want = "unauthorized"
			case !role.May(token.Role(need)):
				want = "forbidden"
			}
			if denied := code == "unauthorized" || code == "forbidden"; denied != (want != "") || denied && code != want {
				t.Errorf("%s needs %s, role %q: got %d %s, want %q", route, need, role, got.status, code, want)
			}
			if got.status >= 500 {
				t.Errorf("%s: %d %s", route, got.status, got.body)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if known != len(roles) || known < 50 {
		t.Errorf("the router has %d routes, %d have roles", known, len(roles))
	}
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestRouteWithoutRoleIsClosed(t *testing.T) {
	t.Parallel()
	handler, _, s := api.Routes(deps(t, dbtest.New(t)))
	s.Undeclared("/forgotten")
	b := &bundle{t: t, url: serve(t, handler)}
	if got := b.do(token.Admin, http.MethodGet, "/forgotten", nil); got.status != http.StatusForbidden {
		t.Errorf("a route without a role let an admin in: %d", got.status)
	}
}

func TestRoleOrder(t *testing.T) {
	t.Parallel()
	may := map[token.Role]string{
		token.Viewer:    "viewer",
		token.Submitter: "viewer submitter",
		token.Operator:  "viewer submitter operator",
		token.Admin:     "viewer submitter operator agent admin",
		token.Agent:     "agent",
	}
	for role, list := range may {
		for _, need := range token.Roles() {
			want := strings.Contains(" "+list+" ", " "+string(need)+" ")
			if got := role.May(need); got != want {
				t.Errorf("%s may do what needs %s: %v, want %v", role, need, got, want)
			}
		}
	}
	if token.Role("root").May(token.Viewer) || token.Admin.May("root") {
		t.Error("an unknown role may do something")
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, header := range map[string]string{
		"unknown token": "Authorization: Bearer nobody",
		"empty token":   "Authorization: Bearer ",
		"basic":         "Authorization: Basic " + secret(token.Admin),
		"bare token":    "Authorization: " + secret(token.Admin),
	} {
		t.Run(name, func(t *testing.T) {
			got := b.do("", http.MethodGet, "/api/v1/orders", nil, header)
			if p := got.problem(t); p.Code != "unauthorized" || got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	if got := b.do("", http.MethodGet, "/api/v1/orders", nil, "Authorization: bearer "+secret(token.Viewer)); got.status != http.StatusOK {
		t.Errorf("the scheme's name isn't bound to case, got %d", got.status)
	}
}

// A token is made, works, is told once, stored hashed, and works no more when it
// is revoked.
func TestTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.client(token.Admin)
	made, err := admin.CreateToken(t.Context(), "ci", "viewer")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := client.New(client.Config{URLs: []string{b.url}, Token: made})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ci.Orders(t.Context(), client.OrderFilter{}, "", 0); err != nil {
		t.Errorf("the new token doesn't work: %v", err)
	}
	if _, err := ci.Add(t.Context(), client.NewOrder{Workflow: "free"}); code(err) != "forbidden" {
		t.Errorf("a viewer added an order: %v", err)
	}
	var stored []byte
	if err := b.db.Pool.QueryRow(t.Context(), `SELECT sha256 FROM siding.tokens WHERE name = 'ci'`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if hash := token.Hash(made); hex.EncodeToString(hash[:]) != hex.EncodeToString(stored) {
		t.Error("what is stored isn't the token's SHA-256")
	}
	if got := b.do(token.Admin, http.MethodGet, "/api/v1/tokens", nil); strings.Contains(got.body, made) || strings.Contains(got.body, hex.EncodeToString(stored)) {
		t.Errorf("the list tells secrets: %s", got.body)
	}
	for _, bad := range []struct{ name, role, code string }{
		{"ci", "viewer", "token_exists"}, {"t-admin", "viewer", "token_exists"}, {"../x", "viewer", "invalid_name"}, {"y", "root", "invalid_role"},
	} {
		if _, err := admin.CreateToken(t.Context(), bad.name, bad.role); code(err) != bad.code {
			t.Errorf("create %s %s: %v, want %s", bad.name, bad.role, err, bad.code)
		}
	}
	if err := admin.RevokeToken(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := ci.Orders(t.Context(), client.OrderFilter{}, "", 0); code(err) != "unauthorized" {
		t.Errorf("a revoked token works: %v", err)
	}
	if err := admin.RevokeToken(t.Context(), "nobody"); code(err) != "token_not_found" {
		t.Errorf("revoke nobody: %v", err)
	}
}

func TestOnBehalfOf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := client.New(client.Config{URLs: []string{b.url}, Token: secret(token.Operator), OnBehalfOf: "Ada"})
	if err != nil {
		t.Fatal(err)
	}
	added, err := c.Add(t.Context(), client.NewOrder{Workflow: "scanned", Ref: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Suspend(t.Context(), "ref:r", false, "lunch"); err != nil {
		t.Fatal(err)
	}
	history, err := c.History(t.Context(), "ref:r")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range history {
		found = found || m.Kind == "suspend" && m.Person == "t-operator for Ada" && m.Reason == "lunch"
	}
	if !found {
		t.Errorf("history of order %d doesn't say who suspended it and why: %+v", added.ID, history)
	}
	long := b.do(token.Viewer, http.MethodGet, "/api/v1/orders", nil, "On-Behalf-Of: "+strings.Repeat("x", 300))
	if p := long.problem(t); p.Code != "invalid_request" {
		t.Errorf("a long name: %s", long.body)
	}
}

// Dev mode lets requests without a token in only over a loopback listener, and
// only if nothing says that they come from elsewhere.
func TestDevMode(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	start := func(allow bool, listen net.Addr) *bundle {
		x := deps(t, d)
		x.AllowLoopback, x.Listen = allow, listen
		return &bundle{t: t, url: serve(t, api.New(x))}
	}
	for name, tt := range map[string]struct {
		allow   bool
		listen  net.Addr
		method  string
		headers []string
		host    string
		want    int
	}{
		"loopback":            {allow: true, listen: loopback, want: 200},
		"localhost":           {allow: true, listen: loopback, host: "localhost:1", want: 200},
		"off":                 {allow: false, listen: loopback, want: 401},
		"listens everywhere":  {allow: true, listen: &net.TCPAddr{IP: net.IPv4zero, Port: 1}, want: 401},
		"listens nowhere":     {allow: true, want: 401},
		"behind a proxy":      {allow: true, listen: loopback, headers: []string{"X-Forwarded-For: 10.0.0.1"}, want: 401},
		"a foreign name":      {allow: true, listen: loopback, host: "siding.example.com", want: 401},
		"a foreign page":      {allow: true, listen: loopback, method: "POST", headers: []string{"Origin: https://example.com"}, want: 401},
		"a wrong token":       {allow: true, listen: loopback, headers: []string{"Authorization: Bearer x"}, want: 401},
		"a cross-site script": {allow: true, listen: loopback, method: "POST", headers: []string{"Sec-Fetch-Site: cross-site"}, want: 401},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(tt.allow, tt.listen)
			method, path := http.MethodGet, "/api/v1/tokens"
			if tt.method != "" {
				method, path = tt.method, "/api/v1/apply"
			}
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, b.url+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range tt.headers {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			if tt.host != "" {
				req.Host = tt.host
			}
			if got := b.send(req); got.status != tt.want {
				t.Errorf("got %d %s, want %d", got.status, got.body, tt.want)
			}
		})
	}
}

// code is the code of a problem that the client got.
func code(err error) string {
	if p, ok := asProblem(err); ok {
		return p.Code
	}
	return ""
}
