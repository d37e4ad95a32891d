package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/token"
)

func asProblem(err error) (*client.Problem, bool) {
	var p *client.Problem
	ok := errors.As(err, &p)
	return p, ok
}

// zeros is a long body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// What is wrong is told clearly, and nothing is written.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	if _, err := c.AddMany(t.Context(), []client.NewOrder{
		{Workflow: "scanned", Ref: "blocked"}, {Workflow: "keyed", Key: "k", Ref: "first"}, {Workflow: "keyed", Key: "k", Ref: "second"},
	}); err != nil {
		t.Fatal(err)
	}
	before := b.settled()

	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code                     string
		says                     []string // in the problem
	}{
		{"unknown workflow", "POST", "/orders", `{"workflow":"nowhere"}`, 422, "unknown_workflow", []string{"nowhere", `"hint"`}},
		{"no workflow", "POST", "/orders", `{}`, 422, "unknown_workflow", nil},
		{"missing key", "POST", "/orders", `{"workflow":"keyed"}`, 422, "key_required", []string{"keyed"}},
		{"key not allowed", "POST", "/orders", `{"workflow":"free","key":"k"}`, 422, "key_not_allowed", nil},
		{"key as a number", "POST", "/orders", `{"workflow":"keyed","key":7}`, 422, "invalid_order", []string{"quotes"}},
		{"unknown queue", "POST", "/orders", `{"workflow":"free","queue":"Q9"}`, 422, "unknown_queue", []string{"Q9"}},
		{"unknown field", "POST", "/orders", `{"workflow":"free","prio":1}`, 422, "invalid_order", []string{"prio"}},
		{"one bad of many", "POST", "/orders", `[{"workflow":"free"},{"workflow":"nowhere"}]`, 422, "unknown_workflow", []string{`orders[1]`, `"index":1`}},
		{"negative wait limit", "POST", "/orders", `{"workflow":"scanned","wait_limit":"-5m"}`, 422, "invalid_order", []string{"-5m"}},
		{"attachment with a path", "POST", "/orders", `{"workflow":"free","attachments":[{"name":"../../etc/passwd"}]}`, 422, "invalid_attachment", []string{"../../etc/passwd"}},
		{"10 MiB of arguments", "POST", "/orders", `{"workflow":"free","args":{"a":"` + strings.Repeat("x", 10<<20) + `"}}`, 422, "invalid_order", []string{"10 MB", "attachment"}},
		{"broken JSON", "POST", "/orders", "{\n  \"workflow\": free}", 400, "invalid_request", []string{`"line":2`, `"column":16`}},
		{"no JSON", "POST", "/orders", ``, 400, "invalid_request", nil},
		{"a number", "POST", "/orders", `7`, 422, "invalid_order", nil},
		{"null character", "POST", "/orders", `{"workflow":"free","args":{"a":"\u0000"}}`, 422, "invalid_request", []string{"U+0000"}},
		{"lone surrogate", "POST", "/orders", `{"workflow":"free","args":{"a":"\ud800"}}`, 422, "invalid_request", nil},
		{"other content for a reference", "POST", "/orders", `{"workflow":"free","ref":"blocked"}`, 409, "reference_conflict", []string{"blocked"}},

		{"cancel nobody", "POST", "/orders/999/cancel", `{}`, 404, "order_not_found", nil},
		{"cancel no id", "POST", "/orders/x/cancel", `{}`, 404, "order_not_found", nil},
		{"unknown field of a decision", "POST", "/orders/ref:blocked/cancel", `{"because":"x"}`, 422, "invalid_request", []string{"because"}},
		{"release without reason", "POST", "/orders/ref:second/release", `{}`, 422, "reason_required", nil},
		{"release without body", "POST", "/orders/ref:second/release", ``, 422, "reason_required", nil},
		{"release of the first", "POST", "/orders/ref:first/release", `{"reason":"x"}`, 409, "nothing_to_release", nil},
		{"resume what waits", "POST", "/orders/ref:first/resume", `{}`, 409, "not_suspended", nil},
		{"resolve what waits", "POST", "/orders/ref:first/resolve", `{"action":"resume","reason":"x"}`, 409, "not_in_attention", nil},
		{"resolve somehow", "POST", "/orders/ref:first/resolve", `{"action":"explode","reason":"x"}`, 422, "invalid_action", nil},
		{"move somewhere", "POST", "/orders/ref:first/move", `{"to":"the moon"}`, 422, "invalid_move", nil},
		{"move behind nobody", "POST", "/orders/ref:first/move", `{"to":"after","other":"999"}`, 404, "order_not_found", nil},
		{"assign nothing", "POST", "/orders/ref:first/assign", `{"queue":"Q9"}`, 422, "unknown_queue", nil},
		{"assign what", "POST", "/orders/ref:first/assign", `{}`, 422, "invalid_request", []string{"queue"}},
		{"reason with a null character", "POST", "/orders/ref:first/cancel", `{"reason":"\u0000"}`, 422, "invalid_request", nil},

		{"queue of capacity 0", "PUT", "/queues/Q2", `{"capacity":0}`, 422, "invalid_definition", []string{`"path":"capacity"`, `"line":1`, "pause"}},
		{"queue with an unknown field", "PUT", "/queues/Q2", "{\n\"capactiy\": 3}", 422, "invalid_definition", []string{`"line":2`, "capacity"}},
		{"queue of another name", "PUT", "/queues/Q2", `{"name":"Q3"}`, 422, "invalid_definition", nil},
		{"queue without a body", "PUT", "/queues/Q2", ``, 400, "invalid_request", nil},
		{"queue with a bad name", "PUT", "/queues/-", `{}`, 422, "invalid_name", nil},
		{"agent that lists nothing", "PUT", "/agents/a2", `{"processes":1,"queues":["Q9"]}`, 422, "unknown_queue", []string{"Q9"}},
		{"negative wait limit of a workflow", "POST", "/apply",
			"kind: workflow\nname: w\nordering: independent\nwait_limit: -5m\nsteps: [{job: x, noop: true, agent: a1}]", 422, "invalid_definition",
			[]string{`"line":4`, "negative"}},
		{"one bad document of two", "POST", "/apply", "kind: queue\nname: Q7\n---\nkind: queue\nname: Q8\npenalty: -1", 422, "invalid_definition", []string{`"line":6`}},
		{"remove what is listed", "DELETE", "/queues/Q1", ``, 409, "queue_listed", []string{"a1"}},
		{"remove nothing", "DELETE", "/queues/Q9", ``, 404, "unknown_queue", nil},

		{"attachment name with a path", "PUT", "/orders/ref:blocked/attachments/..%2F..%2Fetc%2Fpasswd", `x`, 422, "invalid_attachment", []string{"etc/passwd"}},
		{"attachment path", "PUT", "/orders/ref:blocked/attachments/../../etc/passwd", `x`, 404, "not_found", nil},
		{"attachment nobody expects", "PUT", "/orders/ref:blocked/attachments/photo", `x`, 404, "attachment_not_found", []string{"photo"}},
		{"expect a path", "POST", "/orders/ref:blocked/attachments", `{"name":"a/b"}`, 422, "invalid_attachment", nil},
		{"expect twice", "POST", "/orders/ref:blocked/attachments", `{"name":"scan"}`, 409, "attachment_exists", nil},
		{"discard without reason", "DELETE", "/orders/ref:blocked/attachments/scan", ``, 422, "reason_required", nil},
		{"read what isn't there", "GET", "/orders/ref:blocked/attachments/scan", ``, 409, "attachment_not_complete", nil},

		{"pause without reason", "POST", "/pauses", `{"kind":"queue","name":"Q1"}`, 422, "reason_required", nil},
		{"pause what", "POST", "/pauses", `{"kind":"planet","name":"Q1","reason":"x"}`, 422, "invalid_pause", nil},
		{"pause until when", "POST", "/pauses", `{"kind":"queue","name":"Q1","reason":"x","until":"later"}`, 422, "invalid_pause", []string{"later"}},
		{"mode of nobody's line", "POST", "/agents/a9/line", `{"mode":"strict","reason":"x"}`, 404, "unknown_agent", nil},
		{"unknown mode", "POST", "/agents/a1/line", `{"mode":"fast","reason":"x"}`, 422, "invalid_mode", nil},

		{"unknown parameter", "GET", "/orders?stat=dead", ``, 422, "invalid_request", []string{"stat"}},
		{"dry run that isn't known", "POST", "/apply?dry_run=true", "kind: queue\nname: Q7", 422, "invalid_request", []string{"dry_run"}},
		{"unknown state", "GET", "/orders?state=tired", ``, 422, "invalid_filter", nil},
		{"foreign cursor", "GET", "/orders?cursor=%21%21", ``, 422, "invalid_cursor", nil},
		{"page of 0", "GET", "/orders?limit=0", ``, 422, "invalid_request", []string{"limit"}},
		{"page too long", "GET", "/orders?limit=1001", ``, 422, "invalid_request", []string{"limit"}},
		{"unknown list", "GET", "/queues/Q1/lists/late", ``, 404, "unknown_list", nil},
		{"list of no queue", "GET", "/queues/Q9/lists/waiting", ``, 404, "unknown_queue", nil},
		{"unknown route", "GET", "/nothing", ``, 404, "not_found", nil},
		{"method that isn't possible", "DELETE", "/orders", ``, 405, "method_not_allowed", nil},
		{"method that nobody knows", "BREW", "/orders", ``, 405, "method_not_allowed", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := b.do(token.Operator, tt.method, "/api/v1"+tt.path, strings.NewReader(tt.body))
			p := got.problem(t)
			if got.status != tt.status || p.Code != tt.code {
				t.Errorf("got %d %s, want %d %s: %s", got.status, p.Code, tt.status, tt.code, got.body)
			}
			if p.Detail == "" {
				t.Errorf("no detail: %s", got.body)
			}
			for _, s := range tt.says {
				if !strings.Contains(got.body, s) {
					t.Errorf("the problem doesn't say %s: %s", s, got.body)
				}
			}
			if after := b.fingerprint(); after != before {
				t.Errorf("something was written:\n%s", difference(before, after))
			}
		})
	}

	t.Run("20 MiB of JSON", func(t *testing.T) {
		for path, want := range map[string]int64{"/orders": 16 << 20, "/apply": 4 << 20, "/orders/ref:first/cancel": 4 << 20} {
			status, problem := b.raw(t, path, 20<<20, io.LimitReader(zeros{}, want+1<<20))
			if status != 413 || problem.Code != "body_too_large" {
				t.Errorf("%s: got %d %s", path, status, problem.Code)
			}
		}
	})
	t.Run("shorter than announced", func(t *testing.T) {
		for path, want := range map[string]string{
			"/orders": "body_incomplete", "/orders/ref:first/cancel": "body_incomplete", "PUT /orders/ref:blocked/attachments/scan": "size_mismatch",
		} {
			_, problem := b.raw(t, path, 100, strings.NewReader(`{"workflow":"free"}`))
			if problem.Code != want {
				t.Errorf("%s: got %s, want %s", path, problem.Code, want)
			}
		}
	})
	if after := b.settled(); after != before {
		t.Errorf("something was written:\n%s", difference(before, after))
	}
}

// settled is the fingerprint when the intake has placed everything and uploads
// that came to nothing are forgotten.
func (b *bundle) settled() string {
	b.t.Helper()
	b.await("no order waits for its place", `SELECT NOT EXISTS (SELECT FROM siding.orders WHERE intake_closed)`)
	return b.fingerprint()
}

// raw sends a request whose announced length isn't that of its body, and reads
// the answer.
func (b *bundle) raw(t *testing.T, path string, announced int64, body io.Reader) (int, client.Problem) {
	t.Helper()
	method := http.MethodPost
	if rest, ok := strings.CutPrefix(path, "PUT "); ok {
		method, path = http.MethodPut, rest
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s /api/v1%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		method, path, secret(token.Operator), announced)
	// The server may close its side early; what counts is what it says.
	_, _ = io.Copy(conn, body)
	_ = conn.(*net.TCPConn).CloseWrite()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer res.Body.Close()
	var p client.Problem
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return res.StatusCode, p
}

func difference(before, after string) string {
	old := map[string]bool{}
	for line := range strings.Lines(before) {
		old[line] = true
	}
	var changed strings.Builder
	for line := range strings.Lines(after) {
		if !old[line] {
			changed.WriteString(line)
		}
	}
	return changed.String()
}
