package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"
)

const (
	// leftoverPoll is how often the end of processes that aren't our children
	// is looked for, as the system doesn't tell.
	leftoverPoll = 20 * time.Millisecond
	// killWait is how long killed processes may take to vanish; more means that
	// they hang in the kernel.
	killWait = 10 * time.Second
)

// endLeftovers ends the processes of an agent that died: TERM, then KILL after
// grace. It returns when none is left, or with an error if some can't be ended.
func endLeftovers(ctx context.Context, log *slog.Logger, jobs []jobRecord, grace time.Duration) error {
	if len(jobs) == 0 {
		return nil
	}
	left, err := findLeftovers(jobs)
	if err != nil {
		return err
	}
	if len(left.unknown) > 0 {
		log.Warn("process groups of the last run can't be recognised on this system and are left alone", "groups", left.unknown)
	}
	if left.empty() {
		return nil
	}
	log.Warn("ending what the last run left", "groups", left.groups, "processes", left.processes)
	for _, phase := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, killWait}} {
		left.signal(phase.signal)
		for deadline := time.Now().Add(phase.wait); time.Now().Before(deadline); {
			if left, err = findLeftovers(jobs); err != nil || left.empty() {
				return err
			}
			if !sleep(ctx, leftoverPoll) {
				return fmt.Errorf("end leftovers: %w", ctx.Err())
			}
			if phase.signal == syscall.SIGKILL {
				left.signal(syscall.SIGKILL) // whatever was forked meanwhile
			}
		}
	}
	return fmt.Errorf("end leftovers: groups %v, processes %v outlive KILL", left.groups, left.processes)
}

// leftovers is what is alive of an ended run.
type leftovers struct {
	// groups are the process groups that are ours for certain.
	groups []int
	// processes carry one of our run ids and stand in none of groups.
	processes []int
	// unknown are groups that live and can't be told from strangers.
	unknown []int
}

func (l leftovers) empty() bool { return len(l.groups) == 0 && len(l.processes) == 0 }

func (l leftovers) signal(signal syscall.Signal) {
	for _, group := range l.groups {
		signalGroup(group, signal)
	}
	for _, process := range l.processes {
		_ = syscall.Kill(process, signal) // gone is fine, and findLeftovers sees the rest
	}
}

// signalGroup sends a signal to a process group and says whether it reached
// any process.
func signalGroup(group int, signal syscall.Signal) bool {
	if group <= 1 { // 0 and 1 would mean our own group and everybody
		return false
	}
	return !errors.Is(syscall.Kill(-group, signal), syscall.ESRCH)
}
