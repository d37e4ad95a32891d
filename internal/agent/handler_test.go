package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

func asHandler(f func(context.Context, protocol.Lease) ([]byte, error)) Handler {
	return func(ctx context.Context, lease protocol.Lease) (json.RawMessage, error) { return f(ctx, lease) }
}

func untilEnd(ctx context.Context, _ protocol.Lease) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

type contextKey struct{}

func TestHandlers(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	handlers := map[string]Handler{
		"outputs": func(_ context.Context, lease protocol.Lease) (json.RawMessage, error) {
			return json.RawMessage(fmt.Sprintf(`{"got":%s}`, lease.Args)), nil
		},
		"error":    func(context.Context, protocol.Lease) (json.RawMessage, error) { return nil, errors.New("no\nluck") },
		"panic":    func(context.Context, protocol.Lease) (json.RawMessage, error) { panic("oh") },
		"list":     func(context.Context, protocol.Lease) (json.RawMessage, error) { return json.RawMessage(`[]`), nil },
		"untilEnd": untilEnd,
	}
	// Without a state directory there are no processes.
	start(t, ctl, func(cfg *Config) { cfg.StateDir, cfg.Handlers = "", handlers })
	tests := map[string]struct {
		job  *protocol.Job
		stop bool
		want protocol.Report
	}{
		"no job":     {want: protocol.Report{Outcome: protocol.Succeeded}},
		"outputs":    {job: &protocol.Job{Name: "outputs"}, want: protocol.Report{Outcome: protocol.Succeeded, Outputs: json.RawMessage(`{"got":{"a":1}}`)}},
		"error":      {job: &protocol.Job{Name: "error"}, want: protocol.Report{Outcome: protocol.Failed, Message: "no luck"}},
		"panic":      {job: &protocol.Job{Name: "panic"}, want: protocol.Report{Outcome: protocol.Failed, Message: "handler panicked: oh"}},
		"no object":  {job: &protocol.Job{Name: "list"}, want: protocol.Report{Outcome: protocol.Failed, Message: "outputs: not a JSON object"}},
		"timeout":    {job: &protocol.Job{Name: "untilEnd", TimeoutMillis: 1}, want: protocol.Report{Outcome: protocol.TimedOut, Message: "timed out after 1ms"}},
		"stop":       {job: &protocol.Job{Name: "untilEnd"}, stop: true, want: protocol.Report{Outcome: protocol.Stopped, Message: "stopped: cancel"}},
		"a process":  {job: &protocol.Job{Name: "other", Script: "true"}, want: protocol.Report{Outcome: protocol.Rejected, Message: "this agent runs no processes and has no handler for job other"}},
		"over argv":  {job: &protocol.Job{Name: "error", Argv: []string{"true"}}, want: protocol.Report{Outcome: protocol.Failed, Message: "no luck"}},
		"no handler": {job: &protocol.Job{Name: "unknown"}, want: protocol.Report{Outcome: protocol.Rejected, Message: "this agent runs no processes and has no handler for job unknown"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ref := ctl.add(protocol.Lease{Job: test.job, Args: json.RawMessage(`{"a":1}`)})
			if test.stop {
				ctl.change(func() { ctl.stop[ref] = "cancel" })
			}
			test.want.LeaseRef = ref
			if diff := cmp.Diff(test.want, ctl.report(t, ref)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A handler sees the values of Run's context, and not its end: it is drained.
func TestHandlerOutlivesTheContextOfRun(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	begun, release := make(chan any, 1), make(chan struct{})
	cfg := testConfig(t)
	cfg.Handlers = map[string]Handler{"h": func(ctx context.Context, _ protocol.Lease) (json.RawMessage, error) {
		begun <- ctx.Value(contextKey{})
		<-release
		return nil, ctx.Err()
	}}
	agent, err := New(cfg, ctl)
	if err != nil {
		t.Fatal(err)
	}
	ref := ctl.add(protocol.Lease{Job: &protocol.Job{Name: "h"}})
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "value"))
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	if got := <-begun; got != "value" {
		t.Errorf("value of the context: %v", got)
	}
	cancel()
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Errorf("report: %+v", got)
	}
}

// A handler that can't be ended doesn't keep Run from returning, which says so;
// the session is left to be named by the next run.
func TestHandlerThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	begun, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	r := start(t, ctl, func(cfg *Config) {
		cfg.Grace, cfg.DrainTimeout = 20*time.Millisecond, -1
		cfg.Handlers = map[string]Handler{"h": func(context.Context, protocol.Lease) (json.RawMessage, error) {
			close(begun)
			<-release
			return nil, nil
		}}
	})
	ctl.add(protocol.Lease{Job: &protocol.Job{Name: "h"}})
	<-begun
	if err := r.stop(); err == nil || !strings.Contains(err.Error(), "handlers ignore the end of their context: [h (order 101)]") {
		t.Errorf("Run: %v", err)
	}
	if len(ctl.closed) != 0 || len(ctl.reports) != 0 {
		t.Errorf("closed %v, reports %+v", ctl.closed, ctl.reports)
	}
}

// BenchmarkNoOp measures orders without a job, which is the agent's own share
// of an order's way.
func BenchmarkNoOp(b *testing.B) {
	benchmarkOrders(b, nil)
}

// BenchmarkHandler measures orders with an empty handler.
func BenchmarkHandler(b *testing.B) {
	benchmarkOrders(b, &protocol.Job{Name: "h"})
}

func benchmarkOrders(b *testing.B, job *protocol.Job) {
	ctl := newFake()
	for range b.N {
		ctl.add(protocol.Lease{Job: job})
	}
	agent, err := New(Config{Name: "a1", Processes: 1000, Handlers: map[string]Handler{
		"h": func(context.Context, protocol.Lease) (json.RawMessage, error) { return nil, nil },
	}}, ctl)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- agent.Run(ctx) }()
	for done := false; !done; {
		ctl.mu.Lock()
		changed := ctl.changed
		done = len(ctl.reports) == b.N
		ctl.mu.Unlock()
		if !done {
			<-changed
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
