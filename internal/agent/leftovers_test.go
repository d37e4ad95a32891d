//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Environment of the agent that the tests kill, which is the test binary
// itself.
const (
	envHelperState   = "AGENT_TEST_HELPER_STATE"
	envHelperScript  = "AGENT_TEST_HELPER_SCRIPT"
	envHelperPIDs    = "AGENT_TEST_HELPER_PIDS"
	envHelperNoGuard = "AGENT_TEST_HELPER_NO_GUARD"
)

func TestMain(m *testing.M) {
	if state := os.Getenv(envHelperState); state != "" {
		if err := runHelperAgent(state); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runHelperAgent is an agent with one job that runs until it is killed.
func runHelperAgent(state string) error {
	ctl := newFake()
	ctl.lastSession = 76
	ctl.add(protocol.Lease{Job: &protocol.Job{
		Name: "job", Script: os.Getenv(envHelperScript), Env: map[string]string{"PIDS": os.Getenv(envHelperPIDs)},
	}})
	agent, err := New(Config{Name: "a1", Processes: 1, StateDir: state}, ctl)
	if err != nil {
		return err
	}
	agent.withoutGuard = os.Getenv(envHelperNoGuard) != ""
	return agent.Run(context.Background())
}

// killedAgent runs an agent in a process of its own, kills it when its job has
// started the given number of processes and is recorded, and returns them.
func killedAgent(t *testing.T, state, script string, processes int, guarded bool) []int {
	t.Helper()
	pidFile := filepath.Join(t.TempDir(), "pids")
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), envHelperState+"="+state, envHelperScript+"="+script, envHelperPIDs+"="+pidFile)
	if !guarded {
		helper.Env = append(helper.Env, envHelperNoGuard+"=1")
	}
	helper.Stdout, helper.Stderr = t.Output(), t.Output()
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	pids := awaitPIDs(t, pidFile, processes)
	t.Cleanup(func() {
		for _, pid := range pids {
			if alive(t, pid) {
				t.Errorf("process %d is left", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	awaitTrue(t, "record of the job", func() bool { return len(recordedJobs(state)) == 1 && recordedJobs(state)[0].ProcessGroup != 0 })
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // it was killed
	return pids
}

func recordedJobs(state string) []jobRecord {
	text, err := os.ReadFile(filepath.Join(state, jobsFileName))
	if err != nil {
		return nil
	}
	var jobs []jobRecord
	if json.Unmarshal(text, &jobs) != nil {
		return nil
	}
	return jobs
}

func TestLeftoversEndBeforeTheNextSession(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script    string
		processes int
	}{
		"group that ignores TERM": {script: stubborn, processes: 3},
		"process that left its group": {
			script: `setsid sh -c 'echo $$ >> $PIDS; exec sleep 600' & sleep 600`, processes: 1,
		},
		"group without its leader": {
			script: `sh -c 'trap "" TERM; echo $$ >> $PIDS; sleep 600 & echo $! >> $PIDS; wait' & wait`, processes: 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			pids := killedAgent(t, state, test.script, test.processes, false)
			if name == "group without its leader" { // the leader ends after the agent, its child goes on
				leader := recordedJobs(state)[0].ProcessGroup
				if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				awaitDead(t, []int{leader})
			}
			for _, pid := range pids {
				if !alive(t, pid) {
					t.Fatalf("process %d didn't outlive the agent, so there is nothing to test", pid)
				}
			}
			ctl := newFake()
			ctl.lastSession = 100
			ctl.onOpen = func(protocol.OpenRequest) {
				for _, pid := range pids {
					if alive(t, pid) {
						t.Errorf("process %d lives when the session is opened", pid)
					}
				}
			}
			r := start(t, ctl, func(cfg *Config) { cfg.StateDir, cfg.Grace = state, 100_000_000 })
			ctl.await(t, "session", func() bool { return len(ctl.opens) == 1 })
			if got := ctl.opens[0].Previous; got != 77 {
				t.Errorf("previous session is %d", got)
			}
			if _, err := os.Stat(filepath.Join(r.agent.cfg.WorkRoot, "77")); !os.IsNotExist(err) {
				t.Errorf("working directories of the last session: %v", err)
			}
		})
	}
}

// The guard ends the jobs of an agent that was killed and doesn't come back.
func TestGuardEndsJobsOfAKilledAgent(t *testing.T) {
	t.Parallel()
	awaitDead(t, killedAgent(t, t.TempDir(), stubborn, 3, true))
}

func TestGuardForgetsAndIsReplaced(t *testing.T) {
	t.Parallel()
	strangers := make([]*exec.Cmd, 3)
	for i := range strangers {
		strangers[i] = exec.Command("sleep", "600")
		strangers[i].SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := strangers[i].Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = strangers[i].Process.Kill(); _ = strangers[i].Wait() })
	}
	kept, forgotten, later := strangers[0].Process.Pid, strangers[1].Process.Pid, strangers[2].Process.Pid
	g := newGuard(testConfig(t).Logger)
	g.add(kept)
	g.add(forgotten)
	// The guard itself is killed: the next change finds out and starts another.
	first := g.cmd.Process.Pid
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDead(t, []int{first})
	g.remove(forgotten)
	g.add(later)
	g.remove(later)
	if g.cmd.Process.Pid == first {
		t.Fatal("the guard wasn't replaced")
	}
	g.close()
	awaitDead(t, []int{kept})
	if !alive(t, forgotten) || !alive(t, later) {
		t.Error("a group that was removed is killed")
	}
}

// A process that got a recorded number later isn't the job.
func TestStrangersAreLeftAlone(t *testing.T) {
	t.Parallel()
	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	pid := stranger.Process.Pid
	state := t.TempDir()
	last, err := openStore(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.begin(sessionRecord{Agent: "a1", Session: 5}); err != nil {
		t.Fatal(err)
	}
	for i, startTime := range []string{"1", "", processStartTime(pid) + "0"} {
		last.put(jobRecord{LeaseRef: protocol.LeaseRef{Order: int64(i)}, RunID: "run-" + strconv.Itoa(i), ProcessGroup: pid, StartTime: startTime})
	}
	last.put(jobRecord{LeaseRef: protocol.LeaseRef{Order: 9}, RunID: "never-started"})
	if err := last.flush(); err != nil {
		t.Fatal(err)
	}
	last.close()

	ctl := newFake()
	start(t, ctl, func(cfg *Config) { cfg.StateDir = state })
	ctl.await(t, "session", func() bool { return len(ctl.opens) == 1 })
	if got := ctl.opens[0].Previous; got != 5 {
		t.Errorf("previous session is %d", got)
	}
	if !alive(t, pid) {
		t.Error("a stranger was killed")
	}
	// The same process with its own start time would have been ended.
	left, err := findLeftovers([]jobRecord{{RunID: "x", ProcessGroup: pid, StartTime: processStartTime(pid)}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{pid}, left.groups); diff != "" {
		t.Error(diff)
	}
}
