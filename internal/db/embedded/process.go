//go:build unix

package embedded

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// account is the user that Postgres runs as; nil means ourselves. Postgres
// refuses to run as root.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil // nil is documented
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("postgres can't run as root, and there is no user postgres or nobody")
}

// command prepares a program that runs as the account, in a process group of
// its own so that a Ctrl-C meant for us doesn't reach it.
func command(cred *syscall.Credential, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second // for output that a child left open
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PGDATA=", "PGOPTIONS=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: cred}
	return cmd
}

// own gives a path to the account.
func own(cred *syscall.Credential, path string) error {
	if cred == nil {
		return nil
	}
	return os.Chown(path, int(cred.Uid), int(cred.Gid))
}

// watchdogScript waits until its standard input ends. If that wasn't announced,
// the process that held the other end is gone, however it ended: then the
// server goes too, and the folders that were only for it. Unlike a parent death
// signal this works on every Unix, and cleans up.
const watchdogScript = `
pid=$1 signal=$2; shift 2
read -r word
[ "$word" != stopped ] || exit 0
kill -s "$signal" "$pid"
i=0
while kill -0 "$pid" && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done
rm -rf -- "$@"
`

// watchdog ends a server when this process is gone.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watch starts a watchdog that, when we are gone, sends signal to pid and then
// removes the paths.
func watch(cred *syscall.Credential, pid int, signal string, remove ...string) (*watchdog, error) {
	args := append([]string{"-c", watchdogScript, "siding-watchdog", strconv.Itoa(pid), signal}, remove...)
	cmd := command(cred, "/", "/bin/sh", args...)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// dismiss tells the watchdog that the server has ended.
func (w *watchdog) dismiss() {
	_, _ = io.WriteString(w.pipe, "stopped\n") // a watchdog that is gone needs no word
	_ = w.pipe.Close()                         // as above
	_ = w.cmd.Wait()                           // as above
}

// tail keeps the last lines of the server's log, for error messages.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

const tailSize = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	if extra := len(t.bytes) - tailSize; extra > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[extra:]...)
	}
	return len(p), nil
}

// String returns what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.bytes))
}
