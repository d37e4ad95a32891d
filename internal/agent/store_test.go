package agent

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

func TestStoreRemembersTheLastRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if last, jobs, err := s.lastRun(); err != nil || last.Session != 0 || len(jobs) != 0 {
		t.Fatalf("first run: %+v, %+v, %v", last, jobs, err)
	}
	if err := s.begin(sessionRecord{Agent: "a1", Session: 7}); err != nil {
		t.Fatal(err)
	}
	kept := jobRecord{LeaseRef: protocol.LeaseRef{Order: 0, Lease: 1}, RunID: "r", ProcessGroup: 99, StartTime: "12"}
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			ref := protocol.LeaseRef{Order: int64(i), Lease: 1}
			s.put(jobRecord{LeaseRef: ref, RunID: "r", ProcessGroup: 99, StartTime: "12"})
			if err := s.flush(); err != nil {
				t.Error(err)
			}
			if i > 0 {
				s.remove(ref)
			}
		})
	}
	writers.Wait()
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	s.close()

	again, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	last, jobs, err := again.lastRun()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sessionRecord{Agent: "a1", Session: 7, Boot: bootID()}, last); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]jobRecord{kept}, jobs); diff != "" {
		t.Error(diff)
	}
	// After a reboot the session is still to be named, and no process is left.
	again.boot = "another boot"
	if last, jobs, err := again.lastRun(); err != nil || last.Session != 7 || len(jobs) != 0 {
		t.Errorf("after a reboot: %+v, %+v, %v", last, jobs, err)
	}
	if err := again.end(); err != nil {
		t.Fatal(err)
	}
	if last, _, err := again.lastRun(); err != nil || last.Session != 0 {
		t.Errorf("after the end: %+v, %v", last, err)
	}
}

// With damaged records nobody knows what runs: the agent must not guess.
func TestDamagedStateIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{sessionFileName, jobsFileName} {
		cfg := testConfig(t)
		s, err := openStore(cfg.StateDir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.begin(sessionRecord{Agent: "a1", Session: 7}); err != nil {
			t.Fatal(err)
		}
		s.close()
		if err := os.WriteFile(filepath.Join(cfg.StateDir, name), []byte(`{"session":`), 0o600); err != nil {
			t.Fatal(err)
		}
		agent, err := New(cfg, newFake())
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Run(t.Context()); err == nil || !strings.Contains(err.Error(), name+" is damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
