package api_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

// The OpenAPI document has every route of the router, with its role, its
// parameters and a schema for each reference.
func TestDescription(t *testing.T) {
	t.Parallel()
	handler, roles, s := api.Routes(deps(t, dbtest.New(t)))
	b := &bundle{t: t, url: serve(t, handler)}
	got := b.do("", http.MethodGet, "/openapi.json", nil)
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %s", doc.OpenAPI)
	}
	ids := map[string]string{}
	err := s.Walk(func(route string) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, api.Base) {
			return
		}
		text, ok := doc.Paths[path][strings.ToLower(method)]
		if !ok {
			t.Errorf("%s isn't described", route)
			return
		}
		var op struct {
			OperationID, Summary string
			Role                 string `json:"x-role"`
			Parameters           []struct{ Name, In string }
			Responses            map[string]json.RawMessage
		}
		if err := json.Unmarshal(text, &op); err != nil {
			t.Fatal(err)
		}
		if op.Summary == "" || op.Role != roles[route] {
			t.Errorf("%s: summary %q, role %q, want %q", route, op.Summary, op.Role, roles[route])
		}
		if other, taken := ids[op.OperationID]; taken || op.OperationID == "" {
			t.Errorf("%s has the operation id %q of %s", route, op.OperationID, other)
		}
		ids[op.OperationID] = route
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			found := false
			for _, p := range op.Parameters {
				found = found || p.In == "path" && p.Name == m[1]
			}
			if !found {
				t.Errorf("%s: parameter %s isn't described", route, m[1])
			}
		}
		for _, status := range []string{"401", "403", "500"} {
			if _, ok := op.Responses[status]; !ok {
				t.Errorf("%s: response %s isn't described", route, status)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(got.body, -1) {
		if _, ok := doc.Components.Schemas[m[1]]; !ok {
			t.Errorf("schema %s is referred to and isn't there", m[1])
		}
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if _, ok := roles[strings.ToUpper(method)+" "+path]; !ok {
				t.Errorf("%s %s is described and doesn't exist", method, path)
			}
		}
	}
}

// Every code that a room can refuse with stands in the table.
func TestCodes(t *testing.T) {
	t.Parallel()
	room := filepath.Join("..")
	patterns := []*regexp.Regexp{
		regexp.MustCompile(`siding\.refuse\((\d+), '(\w+)'`),
		regexp.MustCompile(`ERRCODE = 'SD(\d+)', CONSTRAINT = '(\w+)'`),
		regexp.MustCompile(`Refuse\("(\w+)", (\d+)`),
	}
	seen := 0
	err := filepath.WalkDir(room, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "scenario") {
			return err
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".sql" || filepath.Base(path) == "refusal.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, pattern := range patterns {
			for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
				status, code := m[1], m[2]
				if _, err := strconv.Atoi(status); err != nil {
					status, code = code, status
				}
				if strings.HasSuffix(code, "_") { // put together of a prefix and a kind
					continue
				}
				seen++
				known, ok := api.CodeStatus(code)
				if !ok {
					t.Errorf("%s refuses with %s, which isn't in the table", path, code)
					continue
				}
				// See the comment at the table.
				if n, _ := strconv.Atoi(status); n != known && code != "revision_conflict" && !strings.HasPrefix(code, "unknown_") {
					t.Errorf("%s refuses with %s and %s; the table says %d", path, code, status, known)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Errorf("only %d refusals were found: does the test still look at the right places?", seen)
	}
}

// A panic, and an answer that was begun when it came.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	x := deps(t, dbtest.New(t))
	x.Logger = slog.New(slog.NewTextHandler(&log, nil))
	handler, _, s := api.Routes(x)
	s.Panic("/panic", false)
	s.Panic("/panic-late", true)
	b := &bundle{t: t, url: serve(t, handler)}
	got := b.do("", http.MethodGet, "/panic", nil, "X-Request-Id: my-request")
	p := got.problem(t)
	if p.Code != "internal" || got.status != 500 || p.RequestID != "my-request" || got.header.Get("X-Request-Id") != "my-request" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if strings.Contains(got.body, "secret") {
		t.Errorf("the answer tells details: %s", got.body)
	}
	if text := log.String(); !strings.Contains(text, "my-request") || !strings.Contains(text, "a secret of the inside") {
		t.Errorf("the log lacks the request or the cause: %s", text)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/panic-late", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		defer res.Body.Close()
		if _, err := bytes.NewBuffer(nil).ReadFrom(res.Body); err == nil {
			t.Error("an answer that was cut off looks whole")
		}
	}
}

// Errors of the database are told without details, and as something that can be
// tried elsewhere.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	b := &bundle{t: t, url: serve(t, api.New(deps(t, d)))}
	if got := b.do("", http.MethodGet, "/readyz", nil); got.status != 200 {
		t.Errorf("ready: %d %s", got.status, got.body)
	}
	d.Close()
	got := b.do("viewer", http.MethodGet, "/api/v1/pauses", nil)
	if p := got.problem(t); got.status < 500 || strings.Contains(got.body, "pool") || p.RequestID == "" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := b.do("", http.MethodGet, "/readyz", nil); got.status != 503 || got.problem(t).Code != "not_ready" {
		t.Errorf("ready without a database: %d %s", got.status, got.body)
	}
	if got := b.do("", http.MethodGet, "/healthz", nil); got.status != 200 {
		t.Errorf("health: %d", got.status)
	}
}

func TestMethodNotAllowedSaysWhich(t *testing.T) {
	t.Parallel()
	handler, _, _ := api.Routes(deps(t, dbtest.New(t)))
	b := &bundle{t: t, url: serve(t, handler)}
	got := b.do("", http.MethodDelete, "/api/v1/orders", nil)
	if allow := strings.Join(got.header.Values("Allow"), " "); got.status != 405 || allow != "GET HEAD POST" {
		t.Errorf("%d, Allow: %s", got.status, allow)
	}
}
