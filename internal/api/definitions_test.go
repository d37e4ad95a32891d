package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/token"
)

// The ETag of a definition lets one of two writers win.
func TestETag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := func(body string, status int, headers ...string) answer {
		t.Helper()
		got := b.do(token.Operator, http.MethodPut, "/api/v1/queues/Q7", strings.NewReader(body), headers...)
		if got.status != status {
			t.Fatalf("PUT %s %v: %d %s, want %d", body, headers, got.status, got.body, status)
		}
		if status == http.StatusPreconditionFailed {
			if p := got.problem(t); p.Code != "revision_conflict" {
				t.Errorf("code %s", p.Code)
			}
		}
		return got
	}
	put(`{}`, 412, `If-Match: "1"`)
	put(`{}`, 412, `If-Match: *`)
	first := put(`{"capacity": 3}`, 201, `If-None-Match: *`).header.Get("ETag")
	put(`{"capacity": 4}`, 412, `If-None-Match: *`)
	got := b.do(token.Viewer, http.MethodGet, "/api/v1/queues/Q7", nil)
	if got.status != 200 || got.header.Get("ETag") != first {
		t.Fatalf("GET: %d, ETag %s, want %s", got.status, got.header.Get("ETag"), first)
	}
	if again := put(`{"capacity": 3}`, 200).header.Get("ETag"); again != first {
		t.Errorf("the same content has ETag %s, not %s", again, first)
	}
	second := put(`{"capacity": 5}`, 200, "If-Match: "+first).header.Get("ETag")
	if second == first {
		t.Error("another content has the same ETag")
	}
	put(`{"capacity": 6}`, 412, "If-Match: "+first)
	put(`{"capacity": 6}`, 200, "If-Match: "+first+", "+second)
	current := put(`{"capacity": 6}`, 200).header.Get("ETag")
	if got := b.do(token.Viewer, http.MethodGet, "/api/v1/queues/Q7", nil, "If-None-Match: "+current); got.status != 304 || got.body != "" {
		t.Errorf("GET of what is known: %d %s", got.status, got.body)
	}
	if got := b.do(token.Viewer, http.MethodGet, "/api/v1/queues/Q7", nil, "If-None-Match: "+first); got.status != 200 {
		t.Errorf("GET of what has changed: %d", got.status)
	}
	if got := b.do(token.Operator, http.MethodDelete, "/api/v1/queues/Q7", nil, "If-Match: "+first); got.status != 412 {
		t.Errorf("DELETE of what has changed: %d", got.status)
	}
	if got := b.do(token.Operator, http.MethodDelete, "/api/v1/queues/Q7", nil, "If-Match: "+current); got.status != 204 {
		t.Errorf("DELETE: %d %s", got.status, got.body)
	}
	if got := b.do(token.Viewer, http.MethodGet, "/api/v1/queues/Q7", nil); got.status != 404 || got.problem(t).Code != "unknown_queue" {
		t.Errorf("GET of what is gone: %d %s", got.status, got.body)
	}
}

func TestPutYAML(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, want := range map[string]int{"kind: queue\nname: Q7\npenalty: 3": 201, "kind: queue\nname: Q8": 422, "kind: queue\nname: Q7\n---\nkind: queue\nname: Q8": 422} {
		got := b.do(token.Operator, http.MethodPut, "/api/v1/queues/Q7", strings.NewReader(body), "Content-Type: application/yaml")
		if got.status != want {
			t.Errorf("PUT %q: %d %s, want %d", body, got.status, got.body, want)
		}
	}
}

func TestDefinitionsByClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	for _, kind := range []string{client.Queue, client.AgentDef, client.Workflow, client.Lock} {
		list, err := c.Definitions(ctx, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			// What was read can be applied again, and is the same.
			change, err := c.PutDefinition(ctx, kind, d.Name, d.Definition, client.IfRevision(d.Revision))
			if err != nil || change.Action != "unchanged" || change.Revision != d.Revision {
				t.Errorf("%s %s: %+v, %v", kind, d.Name, change, err)
			}
		}
	}
	change, err := c.PutDefinition(ctx, client.Lock, "L1", json.RawMessage(`{"capacity": 2}`), client.IfAbsent())
	if err != nil || change.Action != "created" {
		t.Fatalf("%+v, %v", change, err)
	}
	if _, err := c.PutDefinition(ctx, client.Lock, "L1", json.RawMessage(`{"capacity": 2}`), client.IfAbsent()); code(err) != "revision_conflict" {
		t.Errorf("again: %v", err)
	}
	if err := c.DeleteDefinition(ctx, client.Lock, "L1"); err != nil {
		t.Error(err)
	}
	_, err = c.Apply(ctx, []byte("kind: queue\nname: Q1\ncapacity: 0\n"))
	p, ok := asProblem(err)
	if !ok || p.Code != "invalid_definition" || len(p.Errors) != 1 || p.Errors[0].Line != 3 || p.Errors[0].Path != "capacity" {
		t.Errorf("apply: %v", err)
	}
}
