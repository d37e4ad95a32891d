package agent

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// groupPoll is how often the end of a group's processes is looked for after
// its leader has ended, as the system doesn't tell.
const groupPoll = 20 * time.Millisecond

// process is a running process group. Its number is the leader's, which on
// Linux is reaped last, so that a signal never reaches a stranger that got the
// number.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // the leader has ended

	mu     sync.Mutex
	reaped bool // the number may belong to somebody else
	held   bool // the leader has ended and isn't reaped
}

// startProcess starts a program as the leader of a process group of its own,
// with no input.
func startProcess(path string, argv, environ []string, dir string, stdout, stderr *os.File) (*process, error) {
	cmd := &exec.Cmd{
		Path: path, Args: argv, Env: environ, Dir: dir, Stdout: stdout, Stderr: stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	return &process{cmd: cmd, exited: make(chan struct{})}, nil
}

func (p *process) group() int { return p.cmd.Process.Pid }

// watch closes exited when the leader has ended.
func (p *process) watch() {
	defer close(p.exited)
	if awaitLeader(p.group()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = true
		return
	}
	_ = p.cmd.Wait() // the state tells the result; without readers there is no other error
}

// signal signals the group.
func (p *process) signal(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		signalGroup(p.group(), signal)
	}
}

// supervise waits until the group has ended: by itself, by the timeout, or
// because the attempt has to end, by TERM and after a grace by KILL. It returns
// the cause, nil if the leader ended by itself; what remains of the group is
// then killed at once.
func (p *process) supervise(a *attempt) error {
	go p.watch()
	if timeout := a.timeout(); timeout > 0 {
		timer := time.AfterFunc(timeout, func() { a.end(errTimeout) })
		defer timer.Stop()
	}
	select {
	case <-p.exited:
		p.signal(syscall.SIGKILL)
		return nil
	case <-a.ctx.Done():
	}
	select {
	case <-p.exited: // both at once: it ended by itself
		p.signal(syscall.SIGKILL)
		return nil
	default:
	}
	cause := a.endCause()
	p.terminate(a)
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.signal(syscall.SIGKILL) // a process forked while the first was on its way
	return cause
}

// terminate sends TERM and gives the whole group, not only its leader, the
// grace: a shell dies at once, while the program it called still cleans up.
func (p *process) terminate(a *attempt) {
	select {
	case <-a.kill:
		return
	default:
	}
	p.signal(syscall.SIGTERM)
	grace := time.NewTimer(a.grace())
	defer grace.Stop()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for leader := p.exited; ; {
		select {
		case <-leader:
			leader = nil
		case <-a.kill:
			return
		case <-grace.C:
			return
		case <-poll.C:
		}
		if leader == nil && !groupAlive(p.group()) {
			return
		}
	}
}

// reap ends the life of the group's number and returns the leader's exit code;
// for one that was killed by a signal that is 128 and the signal's number, and
// the message names the signal.
func (p *process) reap() (exitCode int, message string) {
	p.mu.Lock()
	p.reaped = true
	held := p.held
	p.mu.Unlock()
	if held {
		_ = p.cmd.Wait() // the state tells the result; without readers there is no other error
	}
	state := p.cmd.ProcessState
	if state == nil {
		return -1, "exit code unknown"
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), fmt.Sprintf("ended by signal %d (%s)", int(status.Signal()), status.Signal())
	}
	return state.ExitCode(), fmt.Sprintf("exit code %d", state.ExitCode())
}
