package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// failTimes makes the first calls of a kind fail.
func failTimes(call string, times int64) func(string) error {
	var count atomic.Int64
	return func(got string) error {
		if got == call && count.Add(1) <= times {
			return errTemporary
		}
		return nil
	}
}

// The answer of the first claim is lost on its way: the request is repeated
// with its id, which brings the same orders.
func TestClaimIsRepeatedWithItsID(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	ctl.late = failTimes("claim", 2)
	ref := ctl.addScript("true")
	start(t, ctl, nil)
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Errorf("report: %+v", got)
	}
	ctl.await(t, "the next claim", func() bool { return len(ctl.claims) >= 4 })
	first, next := ctl.claims[:3], ctl.claims[3]
	for _, claim := range first {
		if diff := cmp.Diff(first[0], claim); diff != "" {
			t.Error(diff)
		}
	}
	if next.RequestID == first[0].RequestID {
		t.Error("a new request has the id of an answered one")
	}
}

// A report whose answer is lost is repeated; the job isn't run again.
func TestReportIsRepeated(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	ctl.late = failTimes("report", 2)
	r := start(t, ctl, nil)
	ref := ctl.addScript("true")
	ctl.report(t, ref)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if len(ctl.reports) != 1 {
		t.Errorf("reports: %+v", ctl.reports)
	}
}

func TestNeverMoreOrdersThanProcesses(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	var running, most atomic.Int64
	begun, release := make(chan struct{}, 100), make(chan struct{})
	handler := func(context.Context, protocol.Lease) (outputs []byte, err error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		begun <- struct{}{}
		<-release
		return nil, nil
	}
	for range 20 {
		ctl.add(protocol.Lease{Job: &protocol.Job{Name: "h"}})
	}
	start(t, ctl, func(cfg *Config) {
		cfg.Processes = 3
		cfg.Handlers = map[string]Handler{"h": asHandler(handler)}
	})
	for range 3 {
		<-begun
	}
	ctl.await(t, "heartbeat with the running leases", func() bool {
		return len(ctl.heartbeats) > 0 && len(ctl.heartbeats[len(ctl.heartbeats)-1].Leases) == 3
	})
	if len(ctl.claims) != 1 || ctl.claims[0].Slots != 3 {
		t.Errorf("claims while all processes are taken: %+v", ctl.claims)
	}
	close(release)
	ctl.await(t, "all reports", func() bool { return len(ctl.reports) == 20 })
	if most.Load() > 3 {
		t.Errorf("%d ran at once", most.Load())
	}
}

// A session that is gone: its processes are killed before the next one is
// opened, which names it.
func TestSessionGoneOpensAnother(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"claim", "heartbeat", "report", "output", "attachment"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			ctl := newFake()
			var doomed atomic.Bool
			ctl.fail = func(got string) error {
				if got == call && doomed.CompareAndSwap(true, false) {
					return protocol.ErrSessionGone
				}
				return nil
			}
			pidFile := filepath.Join(t.TempDir(), "pids")
			var pids []int
			ctl.onOpen = func(req protocol.OpenRequest) {
				for _, pid := range pids {
					if alive(t, pid) {
						t.Errorf("process %d lives when the next session is opened", pid)
					}
				}
			}
			start(t, ctl, nil)
			first := ctl.add(protocol.Lease{Job: &protocol.Job{Name: "job", Script: stubborn, Env: map[string]string{"PIDS": pidFile}}})
			pids = awaitPIDs(t, pidFile, 3)
			doomed.Store(true)
			// An order that makes each of the calls.
			ctl.attachments["a"] = []byte("x")
			ctl.add(protocol.Lease{
				Attachments: []protocol.Attachment{{Name: "a", Size: 1}}, Job: &protocol.Job{Name: "job", Script: "echo some output"},
			})
			ctl.await(t, "second session", func() bool { return len(ctl.opens) == 2 })
			if got := ctl.opens[1].Previous; got != 1 {
				t.Errorf("previous session is %d", got)
			}
			third := ctl.addScript("true")
			if got := ctl.report(t, third); got.Outcome != protocol.Succeeded {
				t.Errorf("report in the second session: %+v", got)
			}
			for _, report := range ctl.reports {
				if report.LeaseRef == first {
					t.Errorf("report of a killed job: %+v", report)
				}
			}
		})
	}
}

func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"open", "claim", "heartbeat"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			ctl := newFake()
			ctl.fail = func(got string) error {
				if got == call {
					return protocol.ErrRefused
				}
				return nil
			}
			r := start(t, ctl, nil)
			if err := r.wait(); !errors.Is(err, protocol.ErrRefused) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// A controller that doesn't hold requests isn't asked in a tight loop.
func TestEmptyAnswersSlowTheClaimLoop(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	start(t, ctl, func(cfg *Config) { cfg.ClaimWait = time.Nanosecond })
	ctl.await(t, "some heartbeats", func() bool { return len(ctl.heartbeats) >= 25 })
	ctl.mu.Lock()
	claims := len(ctl.claims)
	ctl.mu.Unlock()
	if claims > 25 {
		t.Errorf("%d claims during 25 heartbeats", claims)
	}
}

func TestOneAgentPerStateDirectory(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	r := start(t, ctl, nil)
	ctl.await(t, "session", func() bool { return len(ctl.opens) == 1 })

	if err := r.agent.Run(t.Context()); !errors.Is(err, ErrAlreadyRunning) {
		t.Errorf("same agent: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"state directory": func(cfg *Config) { cfg.StateDir = r.agent.cfg.StateDir },
		"work root":       func(cfg *Config) { cfg.WorkRoot = r.agent.cfg.WorkRoot },
	} {
		cfg := testConfig(t)
		change(&cfg)
		other, err := New(cfg, newFake())
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context()); !errors.Is(err, ErrAlreadyRunning) {
			t.Errorf("same %s: %v", name, err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// Free again, and a session that was closed isn't named.
	again := startAgent(t, ctl, r.agent)
	ctl.await(t, "second session", func() bool { return len(ctl.opens) == 2 })
	if got := ctl.opens[1].Previous; got != 0 {
		t.Errorf("previous session is %d", got)
	}
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}
