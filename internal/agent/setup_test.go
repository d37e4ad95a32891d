package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runner is an agent that runs during a test.
type runner struct {
	t      *testing.T
	ctl    *fakeController
	agent  *Agent
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{
		Name: "a1", Processes: 4, StateDir: t.TempDir(), Grace: awaitLimit, DrainTimeout: awaitLimit, ClaimWait: time.Minute,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// start runs an agent until the test ends. It must then drain without an error.
func start(t *testing.T, ctl *fakeController, change func(*Config)) *runner {
	t.Helper()
	cfg := testConfig(t)
	if change != nil {
		change(&cfg)
	}
	agent, err := New(cfg, ctl)
	if err != nil {
		t.Fatal(err)
	}
	return startAgent(t, ctl, agent)
}

func startAgent(t *testing.T, ctl *fakeController, agent *Agent) *runner {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{t: t, ctl: ctl, agent: agent, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = agent.Run(ctx)
	}()
	t.Cleanup(func() {
		if err := r.stop(); err != nil && !t.Failed() {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// stop ends the agent and returns what Run returned, once.
func (r *runner) stop() error {
	r.t.Helper()
	r.cancel()
	return r.wait()
}

// wait waits for the end of Run.
func (r *runner) wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(awaitLimit):
		r.t.Fatal("Run doesn't end")
	}
	err := r.err
	r.err = nil
	return err
}

// awaitTrue polls for what can only be looked at: files and processes.
func awaitTrue(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(awaitLimit)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// awaitPIDs waits until count process ids stand in a file, one per line.
func awaitPIDs(t *testing.T, path string, count int) []int {
	t.Helper()
	var pids []int
	awaitTrue(t, "process ids in "+filepath.Base(path), func() bool {
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pids = nil
		for line := range strings.Lines(string(text)) {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				return false
			}
			pids = append(pids, pid)
		}
		return len(pids) >= count
	})
	return pids
}

// alive says whether a process lives; a zombie doesn't.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(state))
	return text != "" && !strings.HasPrefix(text, "Z")
}

func awaitDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		awaitTrue(t, "end of process "+strconv.Itoa(pid), func() bool { return !alive(t, pid) })
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

var timeZero time.Time

// logWatch is a log handler that waits for a message.
type logWatch struct {
	slog.Handler
	message string
	seen    chan struct{}
}

func newLogWatch(message string) *logWatch {
	return &logWatch{Handler: slog.DiscardHandler, message: message, seen: make(chan struct{}, 100)}
}

func (l *logWatch) Enabled(context.Context, slog.Level) bool { return true }
func (l *logWatch) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logWatch) WithGroup(string) slog.Handler            { return l }
func (l *logWatch) Handle(_ context.Context, record slog.Record) error {
	if record.Message == l.message {
		l.seen <- struct{}{}
	}
	return nil
}

func (l *logWatch) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.seen:
	case <-time.After(awaitLimit):
		t.Fatalf("waited in vain for the log message %q", l.message)
	}
}
