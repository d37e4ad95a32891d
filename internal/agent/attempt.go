package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Why an attempt is ended from outside. The first cause counts, but errGone
// and errUnreachable always kill at once.
var (
	errGone          = errors.New("lease is gone")
	errUnreachable   = errors.New("controller not reached for the session's time to live")
	errShutdown      = errors.New("agent shuts down")
	errTimeout       = errors.New("job's timeout is over")
	errSessionClosed = errors.New("session is closed")
)

// stopError is a stop asked for by the controller.
type stopError struct{ reason string }

func (e stopError) Error() string { return "stopped: " + e.reason }

// attempt is the run of one lease.
type attempt struct {
	s       *session
	lease   protocol.Lease
	handler Handler // nil: a process
	// ctx ends when the attempt has to end, for whatever cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// kill is closed when there is no time for a grace.
	kill chan struct{}

	mu      sync.Mutex
	cause   error // first reason to end
	started bool  // process or handler has begun
	gone    bool  // nothing may be reported
	killed  bool  // kill is closed
}

func newAttempt(s *session, lease protocol.Lease) *attempt {
	a := &attempt{s: s, lease: lease, handler: s.cfg.Handlers[lease.Job.Name], kill: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(s.ctx))
	return a
}

// end makes the attempt end for a cause. It doesn't wait.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endLocked(cause)
}

func (a *attempt) endLocked(cause error) {
	if a.cause == nil {
		a.cause = cause
	}
	if errors.Is(cause, errGone) {
		a.gone = true
	}
	if (errors.Is(cause, errGone) || errors.Is(cause, errUnreachable)) && !a.killed {
		a.killed = true
		close(a.kill)
	}
	a.cancel(cause)
}

// endUnstarted ends the attempt unless it has begun.
func (a *attempt) endUnstarted(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started {
		a.endLocked(cause)
	}
}

// begin marks the attempt as begun. It is false if the attempt has to end, in
// which case it must not begin.
func (a *attempt) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil {
		return false
	}
	a.started = true
	return true
}

func (a *attempt) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// endCause is why the attempt has to end, nil if it doesn't.
func (a *attempt) endCause() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

func (a *attempt) timeout() time.Duration {
	return time.Duration(a.lease.Job.TimeoutMillis) * time.Millisecond
}

func (a *attempt) grace() time.Duration {
	if a.lease.Job.GraceMillis > 0 {
		return time.Duration(a.lease.Job.GraceMillis) * time.Millisecond
	}
	return a.s.cfg.Grace
}

// run runs the attempt to its end.
func (a *attempt) run() protocol.Report {
	defer a.cancel(nil)
	var report protocol.Report
	if a.handler != nil {
		report = a.runHandler()
	} else {
		report = a.runJob()
	}
	report.LeaseRef = a.lease.LeaseRef
	if report.Outcome != protocol.Succeeded {
		a.s.log.Info("attempt ended", "order", a.lease.Order, "lease", a.lease.Lease, "job", a.lease.Job.Name,
			"outcome", report.Outcome, "message", report.Message)
	}
	return report
}

// endedReport is the report of an attempt that was ended for a cause.
func (a *attempt) endedReport(cause error) protocol.Report {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	switch {
	case errors.As(cause, new(stopError)):
		return protocol.Report{Outcome: protocol.Stopped, Message: cause.Error()}
	case errors.Is(cause, errTimeout):
		return protocol.Report{Outcome: protocol.TimedOut, Message: fmt.Sprintf("timed out after %s", a.timeout())}
	case !started:
		return protocol.Report{Outcome: protocol.HandedBack, Message: cause.Error()}
	case errors.Is(cause, errShutdown):
		return protocol.Report{Outcome: protocol.Stopped, Message: "ended by the agent: " + cause.Error()}
	default:
		return protocol.Report{Outcome: protocol.Failed, Message: "ended by the agent: " + cause.Error()}
	}
}

// verdict is an error that decides the outcome of an attempt that couldn't be
// carried out. Other errors mean Failed.
type verdict struct {
	outcome protocol.Outcome
	message string
}

func (v verdict) Error() string { return v.message }

func rejected(format string, args ...any) error {
	return verdict{outcome: protocol.Rejected, message: fmt.Sprintf(format, args...)}
}

// errorReport is the report of an attempt that met an error: if it had to end
// meanwhile, that is the reason.
func (a *attempt) errorReport(err error) protocol.Report {
	if cause := a.endCause(); cause != nil {
		return a.endedReport(cause)
	}
	var v verdict
	if errors.As(err, &v) {
		return protocol.Report{Outcome: v.outcome, Message: oneLine(v.message)}
	}
	return protocol.Report{Outcome: protocol.Failed, Message: oneLine(err.Error())}
}
