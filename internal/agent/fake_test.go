package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// awaitLimit is how long a test waits for something that must happen.
const awaitLimit = 60 * time.Second

var errTemporary = errors.New("temporary trouble")

// fakeController keeps the promises of protocol.Controller in memory.
type fakeController struct {
	heartbeat, ttl time.Duration
	// fail is asked before each call is carried out, with the call's name; its
	// error is the answer. late is asked after it was carried out: the answer is lost.
	fail, late func(call string) error
	// onOpen is called when a session is opened.
	onOpen func(protocol.OpenRequest)

	mu          sync.Mutex
	changed     chan struct{}
	lastSession protocol.SessionID
	open        map[protocol.SessionID]bool
	closed      []protocol.SessionID
	opens       []protocol.OpenRequest
	nextLease   int64
	waiting     []protocol.Lease
	leased      map[protocol.LeaseRef]bool
	answers     map[string][]protocol.Lease
	claims      []protocol.ClaimRequest
	heartbeats  []protocol.HeartbeatRequest
	stop        map[protocol.LeaseRef]string
	gone        map[protocol.LeaseRef]bool
	reports     []protocol.Report
	output      map[string][]byte
	attachments map[string][]byte
	// breakAfter breaks each reading of an attachment off after so many bytes.
	breakAfter int
	reads      int
}

func newFake() *fakeController {
	return &fakeController{
		heartbeat: 20 * time.Millisecond, ttl: awaitLimit,
		changed: make(chan struct{}), open: map[protocol.SessionID]bool{}, leased: map[protocol.LeaseRef]bool{},
		answers: map[string][]protocol.Lease{}, stop: map[protocol.LeaseRef]string{}, gone: map[protocol.LeaseRef]bool{},
		output: map[string][]byte{}, attachments: map[string][]byte{},
	}
}

// broadcast wakes everybody who waits for a change. Called with mu held.
func (f *fakeController) broadcast() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits until condition, called with mu held, is true.
func (f *fakeController) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(awaitLimit)
	for {
		f.mu.Lock()
		ok, changed := condition(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// change changes the controller's mind.
func (f *fakeController) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.broadcast()
}

// add queues an order.
func (f *fakeController) add(lease protocol.Lease) protocol.LeaseRef {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextLease++
	lease.LeaseRef = protocol.LeaseRef{Order: 100 + f.nextLease, Lease: f.nextLease}
	f.waiting = append(f.waiting, lease)
	f.broadcast()
	return lease.LeaseRef
}

func (f *fakeController) addScript(script string) protocol.LeaseRef {
	return f.add(protocol.Lease{Job: &protocol.Job{Name: "job", Script: script}})
}

// report waits for the report of a lease.
func (f *fakeController) report(t *testing.T, ref protocol.LeaseRef) protocol.Report {
	t.Helper()
	var found protocol.Report
	f.await(t, fmt.Sprintf("report of %v", ref), func() bool {
		for _, report := range f.reports {
			if report.LeaseRef == ref {
				found = report
				return true
			}
		}
		return false
	})
	return found
}

func (f *fakeController) stdout(ref protocol.LeaseRef) string { return f.stream(ref, "stdout") }

func (f *fakeController) stream(ref protocol.LeaseRef, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.output[fmt.Sprint(ref, name)])
}

// check is the beginning of every call.
func (f *fakeController) check(call string, session protocol.SessionID) error {
	if f.fail != nil {
		if err := f.fail(call); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if session != 0 && !f.open[session] {
		return fmt.Errorf("%s: %w", call, protocol.ErrSessionGone)
	}
	return nil
}

func (f *fakeController) answer(call string) error {
	if f.late != nil {
		return f.late(call)
	}
	return nil
}

func (f *fakeController) OpenSession(_ context.Context, req protocol.OpenRequest) (protocol.Session, error) {
	if err := f.check("open", 0); err != nil {
		return protocol.Session{}, err
	}
	if f.onOpen != nil {
		f.onOpen(req)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastSession++
	delete(f.open, req.Previous)
	f.open[f.lastSession] = true
	f.opens = append(f.opens, req)
	f.broadcast()
	return protocol.Session{ID: f.lastSession, HeartbeatMillis: f.heartbeat.Milliseconds(), TTLMillis: f.ttl.Milliseconds()}, nil
}

func (f *fakeController) Claim(ctx context.Context, req protocol.ClaimRequest) ([]protocol.Lease, error) {
	f.mu.Lock()
	f.claims = append(f.claims, req)
	f.broadcast()
	f.mu.Unlock()
	if err := f.check("claim", req.Session); err != nil {
		return nil, err
	}
	wait := time.NewTimer(time.Duration(req.WaitMillis) * time.Millisecond)
	defer wait.Stop()
	for {
		f.mu.Lock()
		leases, answered := f.answers[req.RequestID]
		if n := min(req.Slots, len(f.waiting)); !answered && n > 0 {
			leases = f.waiting[:n:n]
			f.waiting = f.waiting[n:]
			f.answers[req.RequestID] = leases
			for _, lease := range leases {
				f.leased[lease.LeaseRef] = true
			}
			f.broadcast()
		}
		open, changed := f.open[req.Session], f.changed
		f.mu.Unlock()
		switch {
		case len(leases) > 0:
			if err := f.answer("claim"); err != nil {
				return nil, err
			}
			return leases, nil
		case !open:
			return nil, protocol.ErrSessionGone
		}
		select {
		case <-changed:
		case <-wait.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fakeController) Heartbeat(_ context.Context, req protocol.HeartbeatRequest) (protocol.HeartbeatReply, error) {
	if err := f.check("heartbeat", req.Session); err != nil {
		return protocol.HeartbeatReply{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heartbeats = append(f.heartbeats, req)
	f.broadcast()
	var reply protocol.HeartbeatReply
	for _, ref := range req.Leases {
		if reason := f.stop[ref]; reason != "" {
			reply.Stop = append(reply.Stop, protocol.StopRequest{LeaseRef: ref, Reason: reason})
		}
		if f.gone[ref] {
			reply.Gone = append(reply.Gone, ref)
		}
	}
	return reply, nil
}

func (f *fakeController) Report(_ context.Context, session protocol.SessionID, reports []protocol.Report) ([]protocol.ReportResult, error) {
	if err := f.check("report", session); err != nil {
		return nil, err
	}
	f.mu.Lock()
	results := make([]protocol.ReportResult, len(reports))
	for i, report := range reports {
		results[i] = protocol.ReportResult{LeaseRef: report.LeaseRef, Accepted: f.leased[report.LeaseRef]}
		if results[i].Accepted {
			delete(f.leased, report.LeaseRef)
			f.reports = append(f.reports, report)
		}
	}
	f.broadcast()
	f.mu.Unlock()
	return results, f.answer("report")
}

func (f *fakeController) Output(_ context.Context, session protocol.SessionID, chunks []protocol.OutputChunk) error {
	if err := f.check("output", session); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, chunk := range chunks {
		key := fmt.Sprint(chunk.LeaseRef, chunk.Stream)
		if !f.leased[chunk.LeaseRef] || chunk.Offset != int64(len(f.output[key])) || len(chunk.Data) > 32<<10 {
			return fmt.Errorf("chunk of %s at %d, have %d: %w", key, chunk.Offset, len(f.output[key]), protocol.ErrRefused)
		}
		f.output[key] = append(f.output[key], chunk.Data...)
	}
	f.broadcast()
	return nil
}

func (f *fakeController) Attachment(_ context.Context, session protocol.SessionID, _ protocol.LeaseRef, name string, offset int64) (io.ReadCloser, error) {
	if err := f.check("attachment", session); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	rest := f.attachments[name][offset:]
	if f.breakAfter > 0 && len(rest) > f.breakAfter {
		return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:f.breakAfter]), brokenReader{})), nil
	}
	return io.NopCloser(bytes.NewReader(rest)), nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errTemporary }

func (f *fakeController) CloseSession(_ context.Context, session protocol.SessionID) error {
	if err := f.check("close", session); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, session)
	f.closed = append(f.closed, session)
	f.broadcast()
	return nil
}
