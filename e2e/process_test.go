package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// poll is how often a condition is looked at.
	poll = 25 * time.Millisecond
	// patience is how long anything may take on a busy machine.
	patience = 60 * time.Second
	// logLines is how much of each log a failed test shows.
	logLines = 40
)

// await waits until a condition holds, and fails the test if it doesn't in time.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	awaitFor(t, patience, func() string { return what }, holds)
}

func awaitFor(t *testing.T, limit time.Duration, what func() string, holds func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what())
		case <-t.Context().Done():
			t.Fatalf("the test ended before: %s", what())
		}
	}
}

// process is a running command of the binary.
type process struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
}

// spawn starts the binary, with its log in dir. It is stopped after the test, if
// the test hasn't.
func spawn(t *testing.T, name, dir string, env []string, args ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	p := &process{name: name, cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		if p.running() {
			p.signal(t, syscall.SIGTERM)
			select {
			case <-p.exited:
			case <-time.After(patience):
				t.Errorf("%s doesn't end", name)
				p.signal(t, syscall.SIGKILL)
				<-p.exited
			}
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Errorf("signal %s: %v", p.name, err)
	}
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if !p.running() {
		t.Fatalf("%s has ended before it was killed: %v", p.name, p.err)
	}
	p.signal(t, syscall.SIGKILL)
	<-p.exited
}

// ends waits until a process that was asked to end does so, and in order.
func (p *process) ends(t *testing.T) {
	t.Helper()
	await(t, p.name+" ends", func() bool { return !p.running() })
	if p.err != nil {
		t.Errorf("%s ended with %v, want exit code 0", p.name, p.err)
	}
}

// showLogs shows the ends of all logs in a directory, if the test has failed.
func showLogs(t *testing.T, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, path := range paths {
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("%s ends:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
		}
	}
	if err != nil {
		t.Log(err)
	}
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nothing was sent
	return l.Addr().String()
}

// alive says whether a process lives. One that waits to be reaped doesn't.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
