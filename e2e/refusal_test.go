package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/siding-dev/siding/client"
)

const refusalDefinitions = `
kind: queue
name: Q1
---
kind: agent
name: a1
processes: 1
queues: [Q1]
---
kind: workflow
name: keyed
ordering: {key: order}
steps: [{job: work, agent: a1, run: "true"}]
---
kind: workflow
name: scanned
ordering: independent
attachments: [{name: scan, size: 1000}]
steps: [{job: work, agent: a1, run: "true"}]
`

// request is what is sent as it is, without the client, which would not send
// most of it.
type request struct {
	role, method, path string // path below /api/v1
	body               string
	announced          int    // length, if it isn't the body's
	contentType        string // default: application/json
}

// TestBadInput: what is wrong is refused by a problem document that says what,
// and nothing is written. No agent is there, so nothing else writes either.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := install(t, 1)
	s.apply(refusalDefinitions)
	submitter := s.client("submitter")
	if _, err := submitter.AddMany(t.Context(), []client.NewOrder{
		{Workflow: "scanned", Ref: "blocked"}, {Workflow: "keyed", Key: "k", Ref: "first"}, {Workflow: "keyed", Key: "k", Ref: "second"},
	}); err != nil {
		t.Fatal(err)
	}
	s.awaitWhy(submitter, "ref:second", "key_held", fmt.Sprint(s.order(submitter, "ref:first").ID))
	before := s.contents()

	bigArgs := `{"workflow":"keyed","key":"k","args":{"text":"` + strings.Repeat("x", 10<<20) + `"}}`
	for _, tt := range []struct {
		name string
		request
		status int
		code   string
		says   string // in the detail, the hint or the errors
	}{
		{"unknown workflow", request{body: `{"workflow":"nowhere"}`}, 422, "unknown_workflow", "nowhere"},
		{"missing key", request{body: `{"workflow":"keyed"}`}, 422, "key_required", "keyed"},
		{"empty key", request{body: `{"workflow":"keyed","key":""}`}, 422, "key_required", "keyed"},
		{"10 MiB of JSON in one order", request{body: bigArgs}, 422, "invalid_order", "attachment"},
		{"10 MiB of JSON in one of several orders", request{body: `[{"workflow":"keyed","key":"a"},` + bigArgs + `]`}, 422, "invalid_order", "orders[1]"},
		{"10 MiB of JSON that is a definition", request{role: "operator", method: "PUT", path: "/workflows/keyed", body: bigArgs}, 413, "body_too_large", ""},
		{"17 MiB of JSON", request{body: "[" + strings.Repeat(" ", 17<<20) + "]"}, 413, "body_too_large", ""},
		{"wait limit of -5m", request{body: `{"workflow":"scanned","wait_limit":"-5m"}`}, 422, "invalid_order", "-5m"},
		{"wait limit of -5m in a workflow", request{
			role: "operator", path: "/apply", contentType: "application/yaml",
			body: "kind: workflow\nname: w\nordering: independent\nwait_limit: -5m\nsteps: [{job: x, noop: true, agent: a1}]",
		}, 422, "invalid_definition", `"line":4`},
		{"attachment ../../etc/passwd", request{body: `{"workflow":"scanned","attachments":[{"name":"../../etc/passwd"}]}`}, 422, "invalid_attachment", "../../etc/passwd"},
		{"bytes for ../../etc/passwd", request{method: "PUT", path: "/orders/ref:blocked/attachments/..%2F..%2Fetc%2Fpasswd", body: "x"}, 422, "invalid_attachment", "etc/passwd"},
		{"bytes for ../../etc/passwd, not escaped", request{method: "PUT", path: "/orders/ref:blocked/attachments/../../etc/passwd", body: "x"}, 404, "not_found", ""},
		{"order shorter than announced", request{body: `{"workflow":"scanned"}`, announced: 100}, 400, "body_incomplete", ""},
		{"attachment shorter than announced", request{method: "PUT", path: "/orders/ref:blocked/attachments/scan", body: "too short", announced: 1000}, 422, "size_mismatch", "9 came"},
		{"unknown field", request{body: `{"workflow":"scanned","priority":1}`}, 422, "invalid_order", "priority"},
		{"unknown field of an attachment", request{body: `{"workflow":"scanned","attachments":[{"name":"a","md5":"x"}]}`}, 422, "invalid_attachment", "md5"},
		{"unknown field of a definition", request{role: "operator", method: "PUT", path: "/queues/Q1", body: "{\n\"capactiy\": 3}"}, 422, "invalid_definition", `"line":2`},
		{"queue of capacity 0", request{role: "operator", method: "PUT", path: "/queues/Q1", body: `{"capacity":0}`}, 422, "invalid_definition", "capacity"},
		{"queue of capacity 0 in a file of two", request{
			role: "operator", path: "/apply", contentType: "application/yaml", body: "kind: queue\nname: Q2\n---\nkind: queue\nname: Q3\ncapacity: 0",
		}, 422, "invalid_definition", `"line":6`},
		{"workflow without steps", request{role: "operator", method: "PUT", path: "/workflows/w", body: `{"ordering":"independent","steps":[]}`}, 422, "invalid_definition", "steps"},
		{"workflow without ordering", request{role: "operator", method: "PUT", path: "/workflows/w", body: `{"steps":[{"job":"x","noop":true,"agent":"a1"}]}`}, 422, "invalid_definition", "ordering"},
		{"locks in a cycle", request{
			role: "operator", path: "/apply", contentType: "application/yaml",
			body: "kind: lock\nname: L1\ncapacity: 1\n---\nkind: lock\nname: L2\ncapacity: 1\n---\nkind: workflow\nname: w1\nordering: independent\nsteps:\n" +
				"  - {lock: {L1: 1}, steps: [{lock: {L2: 1}, steps: [{job: x, noop: true, agent: a1}]}]}\n" +
				"---\nkind: workflow\nname: w2\nordering: independent\nsteps:\n" +
				"  - {lock: {L2: 1}, steps: [{lock: {L1: 1}, steps: [{job: x, noop: true, agent: a1}]}]}\n",
		}, 422, "lock_cycle", "L1"},
		{"one bad order of many", request{body: `[{"workflow":"keyed","key":"a"},{"workflow":"keyed","key":"b"},{"workflow":"keyed"}]`}, 422, "key_required", "orders[2]"},
		{"not JSON", request{body: "{\n  workflow: keyed}"}, 400, "invalid_request", `"line":2`},
		{"nothing", request{}, 400, "invalid_request", ""},
		{"release without a reason", request{role: "operator", path: "/orders/ref:second/release", body: `{}`}, 422, "reason_required", ""},
		{"no token", request{role: "nobody", body: `{"workflow":"scanned"}`}, 401, "unauthorized", ""},
		{"token of a viewer", request{role: "viewer", body: `{"workflow":"scanned"}`}, 403, "forbidden", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, document := s.send(t, tt.request)
			var p client.Problem
			if err := json.Unmarshal(document, &p); err != nil {
				t.Fatalf("the answer is no problem document: %v: %s", err, document)
			}
			if status != tt.status || p.Status != tt.status || p.Code != tt.code {
				t.Errorf("got %d %s, want %d %s: %s", status, p.Code, tt.status, tt.code, document)
			}
			if p.Detail == "" || p.Title == "" || p.Type == "" {
				t.Errorf("type, title or detail are missing: %s", document)
			}
			if !strings.Contains(string(document), tt.says) {
				t.Errorf("the problem doesn't say %s: %s", tt.says, document)
			}
			after := s.contents()
			for _, table := range slices.Sorted(maps.Keys(after)) {
				if after[table] != before[table] {
					t.Errorf("table %s: had %s, has %s", table, before[table], after[table])
				}
			}
		})
	}
}

// send sends a request and returns the status and the problem document.
func (s *installation) send(t *testing.T, r request) (int, []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.urls[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	def := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	def(&r.role, "submitter")
	def(&r.method, http.MethodPost)
	def(&r.path, "/orders")
	def(&r.contentType, "application/json")
	if r.announced == 0 {
		r.announced = len(r.body)
	}
	head := fmt.Sprintf("%s /api/v1%s HTTP/1.1\r\nHost: e2e\r\nContent-Type: %s\r\nContent-Length: %d\r\nAuthorization: Bearer %s\r\n\r\n",
		r.method, r.path, r.contentType, r.announced, secret(r.role))
	// The controller may answer, and close, before it has read everything: what
	// counts is the answer, which is read meanwhile.
	go func() {
		_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(head), strings.NewReader(r.body)))
		if len(r.body) < r.announced {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer answer.Body.Close()
	document, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type: got %s, want application/problem+json", got)
	}
	return answer.StatusCode, bytes.TrimSpace(document)
}

// contents has, per table, the number of rows and a hash of them. Left out is
// what the controller writes by itself (ticks, counts, where scans start). Of an upload that broke
// off a note stays for an hour, without bytes, and the time at which the
// attachment became pending again.
func (s *installation) contents() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	for _, row := range s.rows(`
		SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'siding' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		  AND c.relname NOT IN ('keeper_ticks', 'list_counts')`) {
		table := strings.Trim(row, `()"`)
		from, content := `siding.`+table+` t`, `t::text`
		switch table {
		case "uploads":
			from += ` WHERE dropped_at IS NULL`
		case "attachments":
			content = `(to_jsonb(t) - 'changed_at')::text`
		case "lines":
			content = `(to_jsonb(t) - 'floor')::text`
		}
		rows := s.rows(`SELECT count(*), md5(string_agg(c, ',' ORDER BY c)) FROM (SELECT ` + content + ` AS c FROM ` + from + `) x`)
		found[table] = rows[0]
	}
	return found
}
