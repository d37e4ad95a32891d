package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/agent/protocol"
)

// replica is a controller that answers what it is told.
type replica struct {
	calls  atomic.Int32
	status int
	body   string
	cut    bool // the connection ends without an answer
	header http.Header
}

func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.calls.Add(1)
	r.header = req.Header.Clone()
	_, _ = io.Copy(io.Discard, req.Body)
	if r.cut {
		panic(http.ErrAbortHandler)
	}
	if r.status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body)
}

func start(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func newClient(t *testing.T, urls ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URLs: urls, Token: "s3cret", OnBehalfOf: "Ada"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const unavailable = `{"code":"unavailable","status":503}`

// A call goes to another replica if that does no harm.
func TestFailOver(t *testing.T) {
	t.Parallel()
	read := func(c *client.Client) error {
		_, err := c.Pauses(t.Context())
		return err
	}
	addWith := func(ref string) func(*client.Client) error {
		return func(c *client.Client) error {
			_, err := c.Add(t.Context(), client.NewOrder{Workflow: "w", Ref: ref})
			return err
		}
	}
	cancel := func(c *client.Client) error {
		_, err := c.Cancel(t.Context(), "1", "x")
		return err
	}
	for name, tt := range map[string]struct {
		first *replica // nil: nobody listens
		call  func(*client.Client) error
		moves bool
	}{
		"read, nobody there":                    {nil, read, true},
		"read, 503":                             {&replica{status: 503, body: unavailable}, read, true},
		"read, 502 of a proxy":                  {&replica{status: 502, body: "<html>"}, read, true},
		"read, cut off":                         {&replica{cut: true}, read, true},
		"read, 500":                             {&replica{status: 500, body: `{"code":"internal"}`}, read, false},
		"read, 404":                             {&replica{status: 404, body: `{"code":"order_not_found"}`}, read, false},
		"add with reference, 503":               {&replica{status: 503, body: unavailable}, addWith("r"), true},
		"add with reference, cut off":           {&replica{cut: true}, addWith("r"), true},
		"add without reference, 503":            {&replica{status: 503, body: unavailable}, addWith(""), false},
		"add without reference, cut off":        {&replica{cut: true}, addWith(""), false},
		"add without reference, nobody there":   {nil, addWith(""), true},
		"decision, cut off":                     {&replica{cut: true}, cancel, false},
		"decision, nobody there":                {nil, cancel, true},
		"decision, 504 of something in between": {&replica{status: 504}, cancel, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			second := &replica{status: 200, body: `[{"id":1}]`}
			if strings.HasPrefix(name, "read") || strings.HasPrefix(name, "decision") {
				second.body = `{}`
			}
			address := closedPort(t)
			if tt.first != nil {
				address = start(t, tt.first)
			}
			c := newClient(t, address, start(t, second))
			err := tt.call(c)
			if moved := second.calls.Load() > 0; moved != tt.moves || (err == nil) != tt.moves {
				t.Fatalf("went to the second replica: %v, error %v; want %v", moved, err, tt.moves)
			}
			if !tt.moves {
				return
			}
			// The next call begins where the last one was answered.
			before := int32(0)
			if tt.first != nil {
				before = tt.first.calls.Load()
			}
			if err := tt.call(c); err != nil {
				t.Errorf("again: %v", err)
			}
			if tt.first != nil && tt.first.calls.Load() != before {
				t.Error("the next call went to the replica that had failed")
			}
			if got := second.header.Get("Authorization") + ", " + second.header.Get("On-Behalf-Of"); got != "Bearer s3cret, Ada" {
				t.Errorf("headers: %s", got)
			}
		})
	}
}

func TestGivesUp(t *testing.T) {
	t.Parallel()
	only := &replica{status: 503, body: unavailable}
	c := newClient(t, start(t, only))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Pauses(ctx)
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "unavailable" || p.Status != 503 {
		t.Errorf("got %v", err)
	}
	if n := only.calls.Load(); n < 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// A replica that takes a call and says nothing is given up.
func TestSlowReplica(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(release) })
	good := &replica{status: 200, body: `{}`}
	c, err := client.New(client.Config{URLs: []string{slow, start(t, good)}, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pauses(t.Context()); err != nil || good.calls.Load() != 1 {
		t.Errorf("got %v, the good one was asked %d times", err, good.calls.Load())
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replica *replica
		want    client.Problem
		text    string
	}{
		"a problem": {
			&replica{status: 422, body: `{"code":"key_required","status":422,"title":"T","detail":"D.","hint":"H.","facts":{"index":1},"errors":[{"message":"M","line":3,"column":4,"path":"p"}]}`},
			client.Problem{
				Code: "key_required", Status: 422, Title: "T", Detail: "D.", Hint: "H.", Facts: []byte(`{"index":1}`),
				Errors: []client.ProblemItem{{Message: "M", Line: 3, Column: 4, Path: "p"}},
			},
			"D. H (key_required)",
		},
		"no problem": {
			&replica{status: 418, body: "I am a teapot"},
			client.Problem{Code: "http", Status: 418, Title: "418 I'm a teapot", Detail: "418 I'm a teapot I am a teapot"},
			"418 I'm a teapot I am a teapot (http)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newClient(t, start(t, tt.replica)).Pauses(t.Context())
			var got *client.Problem
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
			if got.Error() != tt.text {
				t.Errorf("text %q, want %q", got.Error(), tt.text)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, urls := range [][]string{nil, {"localhost:8080"}, {"ftp://x"}, {"http://"}, {"http://x?y=z"}, {"http://ok", "://"}} {
		if _, err := client.New(client.Config{URLs: urls}); err == nil {
			t.Errorf("%v was taken", urls)
		}
	}
}

// pieces serves a text, a few bytes per request, and cuts the connection then.
type pieces struct {
	text, etag string
	step       int
	calls      atomic.Int32
}

func (p *pieces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.calls.Add(1)
	start := 0
	if text := r.Header.Get("Range"); text != "" {
		start, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(text, "bytes="), "-"))
		if got := r.Header.Get("If-Match"); got != p.etag {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
	}
	w.Header().Set("ETag", p.etag)
	w.Header().Set("Content-Length", strconv.Itoa(len(p.text)-start))
	if start > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	end := min(start+p.step, len(p.text))
	_, _ = io.WriteString(w, p.text[start:end])
	if end < len(p.text) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// A download that breaks is taken up where it broke.
func TestDownloadResumes(t *testing.T) {
	t.Parallel()
	source := &pieces{text: strings.Repeat("0123456789", 10), etag: `"e"`, step: 7}
	body, size, err := newClient(t, start(t, source)).Download(t.Context(), "1", "scan")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || string(got) != source.text || size != int64(len(source.text)) {
		t.Errorf("got %q of %d, %v", got, size, err)
	}
	if n := source.calls.Load(); n != 15 {
		t.Errorf("%d requests, want 15", n)
	}
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
}

// Without a validator nobody knows that the rest belongs to the beginning.
func TestDownloadWithoutETag(t *testing.T) {
	t.Parallel()
	body, _, err := newClient(t, start(t, &pieces{text: "0123456789", step: 7})).Download(t.Context(), "1", "scan")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err == nil || string(got) != "0123456" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What the controller says decides whether an agent asks again.
func TestAgentErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replica       *replica
		gone, refused bool
	}{
		"session gone":   {&replica{status: 410, body: `{"code":"session_gone"}`}, true, false},
		"unauthorized":   {&replica{status: 401, body: `{"code":"unauthorized"}`}, false, true},
		"unknown agent":  {&replica{status: 404, body: `{"code":"unknown_agent"}`}, false, true},
		"invalid":        {&replica{status: 422, body: `{"code":"invalid_request"}`}, false, true},
		"unavailable":    {&replica{status: 503, body: unavailable}, false, false},
		"internal":       {&replica{status: 500, body: `{"code":"internal"}`}, false, false},
		"timeout":        {&replica{status: 408, body: `{"code":"request_timeout"}`}, false, false},
		"a proxy's 404":  {&replica{status: 404, body: `<html>`}, false, false},
		"a proxy's 410":  {&replica{status: 410, body: ``}, false, false},
		"broken off":     {&replica{cut: true}, false, false},
		"something else": {&replica{status: 200, body: `<html>`}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := client.NewAgent(client.Config{URLs: []string{start(t, tt.replica)}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = a.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: 1})
			if err == nil || errors.Is(err, protocol.ErrSessionGone) != tt.gone || errors.Is(err, protocol.ErrRefused) != tt.refused {
				t.Errorf("got %v, want gone %v, refused %v", err, tt.gone, tt.refused)
			}
			if n := tt.replica.calls.Load(); n != 1 {
				t.Errorf("asked %d times: the agent repeats calls itself", n)
			}
		})
	}
}

// An upload that can be read again goes to the next replica whole.
func TestUploadFailsOver(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	second := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got.Store(string(text))
		_, _ = io.WriteString(w, `{"name":"scan","state":"complete"}`)
	}))
	first := &replica{status: 503, body: unavailable}
	c := newClient(t, start(t, first), second)
	text := strings.NewReader("skip hello")
	_, _ = text.Seek(5, io.SeekStart)
	info, err := c.Upload(t.Context(), "1", "scan", text, 5)
	if err != nil || info.State != "complete" || got.Load() != "hello" {
		t.Errorf("got %+v, %v; the second replica got %v", info, err, got.Load())
	}
	c = newClient(t, start(t, &replica{status: 503, body: unavailable}), second)
	if _, err := c.Upload(t.Context(), "1", "scan", io.MultiReader(strings.NewReader("hello")), 5); err == nil {
		t.Error("what can be read once only was sent twice")
	}
}
