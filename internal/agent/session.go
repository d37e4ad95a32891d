package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// session is one open session: it holds the leases and the loops that claim,
// keep them alive and report.
type session struct {
	cfg        Config
	controller protocol.Controller
	host       *host
	log        *slog.Logger
	info       protocol.Session
	// opened is when the opening was asked for, the first sign of life.
	opened time.Time

	// ctx ends when nothing may be said in this session any more: it was
	// closed, it is gone, or the agent gives up. It carries the values of Run's
	// context but not its end.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// failed gets the error that makes the agent drain and stop.
	failed chan error

	mu sync.Mutex
	// held are the leases that the controller counts as ours: claimed, and no
	// report settled. The attempt is nil where nothing runs.
	held map[protocol.LeaseRef]*attempt
	// closed refuses new attempts: the session drains or is gone.
	closed bool
	// drained is closed with closed.
	drained chan struct{}
	// closing is set before the session is closed on purpose.
	closing atomic.Bool
	// fenced refuses new attempts until a heartbeat is acknowledged again.
	fenced bool

	// wake tells the claim loop that a slot is free or the fence is down.
	wake chan struct{}
	// work hands an attempt to a worker that waits for one.
	work     chan *attempt
	attempts sync.WaitGroup
	loops    sync.WaitGroup

	reports *reporter
	output  *shipper
}

func newSession(ctx context.Context, cfg Config, controller protocol.Controller, host *host, info protocol.Session, opened time.Time) *session {
	s := &session{
		cfg: cfg, controller: controller, host: host, info: info, opened: opened,
		log:    cfg.Logger.With("session", info.ID),
		failed: make(chan error, 1),
		held:   map[protocol.LeaseRef]*attempt{},

		drained: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		work:    make(chan *attempt),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.reports = newReporter(s)
	s.output = newShipper(s)
	return s
}

// run works until ctx ends and the drain is done, until the session is gone
// (protocol.ErrSessionGone) or until the controller refuses the agent. No
// process of the session is left when it returns.
func (s *session) run(ctx context.Context) error {
	claiming, stopClaiming := context.WithCancel(ctx)
	defer stopClaiming()
	defer context.AfterFunc(s.ctx, stopClaiming)()
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		s.claimLoop(claiming)
	}()
	s.loops.Go(s.heartbeatLoop)
	s.loops.Go(s.reports.loop)
	s.loops.Go(s.output.loop)

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-s.failed:
	case <-s.ctx.Done():
	}
	s.close()
	stopClaiming()
	err := s.drain(claimed, func() bool { return failure != nil || ctx.Err() != nil })
	s.cancel(errSessionClosed)
	s.loops.Wait()
	return errors.Join(failure, err)
}

// drain ends the attempts, delivers their reports and closes the session.
// Leaving says whether the agent stops, rather than opens another session.
func (s *session) drain(claimed <-chan struct{}, leaving func() bool) error {
	s.each(func(a *attempt) { a.endUnstarted(errShutdown) })
	<-claimed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.attempts.Wait()
	}()

	select {
	case <-ended:
	case <-s.ctx.Done():
	case <-after(s.cfg.DrainTimeout):
		s.log.Info("drain timeout is over, ending the running jobs")
		s.each(func(a *attempt) { a.end(errShutdown) })
	}
	if err := s.awaitAttempts(leaving, ended); err != nil {
		return err
	}
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}

	last, cancel := context.WithTimeout(s.ctx, s.cfg.ReportTimeout)
	defer cancel()
	if err := s.reports.flush(last); err != nil {
		return fmt.Errorf("the last reports weren't delivered: %w", err)
	}
	// A heartbeat under way may find it closed before the answer is here.
	s.closing.Store(true)
	if err := s.controller.CloseSession(last, s.info.ID); err != nil && !errors.Is(err, protocol.ErrSessionGone) {
		return fmt.Errorf("close session: %w", err)
	}
	return s.host.endSession(s.info.ID)
}

// awaitAttempts waits until no attempt is left. Processes always end; a
// handler that ignores its context can't be ended, so an agent that stops
// waits for it only as long as a job may take to end.
func (s *session) awaitAttempts(leaving func() bool, ended <-chan struct{}) error {
	for {
		limit := s.longestEnd()
		select {
		case <-ended:
			return nil
		case <-time.After(limit):
		}
		stuck := s.stuckHandlers()
		s.log.Error("attempts don't end", "handlers", stuck)
		if leaving() && len(stuck) > 0 && len(stuck) == s.runningAttempts() {
			return fmt.Errorf("handlers ignore the end of their context: %v", stuck)
		}
	}
}

// after is time.After for which a negative time is over at once.
func after(d time.Duration) <-chan time.Time { return time.After(max(d, 0)) }

// close refuses new attempts. What is running goes on.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.drained)
	}
}

// gone ends the session because the controller says so: every process is
// killed and nothing more is said.
func (s *session) gone() {
	s.close()
	s.cancel(protocol.ErrSessionGone)
	s.each(func(a *attempt) { a.end(errGone) })
}

// fail makes the agent drain and stop.
func (s *session) fail(err error) {
	select {
	case s.failed <- err:
	default: // one reason is enough
	}
}

// each calls action for every running attempt.
func (s *session) each(action func(*attempt)) {
	s.mu.Lock()
	running := make([]*attempt, 0, len(s.held))
	for _, a := range s.held {
		if a != nil {
			running = append(running, a)
		}
	}
	s.mu.Unlock()
	for _, a := range running {
		action(a)
	}
}

// end ends one attempt if it still runs.
func (s *session) end(ref protocol.LeaseRef, cause error) {
	s.mu.Lock()
	a := s.held[ref]
	s.mu.Unlock()
	if a != nil {
		a.end(cause)
	}
}

// take accepts claimed leases: what runs no process is reported at once, the
// rest is given to workers, and what there is no room for is handed back.
func (s *session) take(leases []protocol.Lease) {
	var reports []protocol.Report
	var start []*attempt
	s.mu.Lock()
	for _, lease := range leases {
		if _, known := s.held[lease.LeaseRef]; known {
			continue
		}
		refuse := s.closed || s.fenced || len(s.held) >= s.cfg.Processes
		s.held[lease.LeaseRef] = nil
		switch {
		case refuse:
			reports = append(reports, protocol.Report{LeaseRef: lease.LeaseRef, Outcome: protocol.HandedBack})
		case lease.Job == nil:
			reports = append(reports, protocol.Report{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded})
		default:
			a := newAttempt(s, lease)
			s.held[lease.LeaseRef] = a
			s.attempts.Add(1)
			start = append(start, a)
		}
	}
	s.mu.Unlock()
	s.reports.add(reports...)
	for _, a := range start {
		select {
		case s.work <- a:
		default:
			go s.worker(a)
		}
	}
}

// worker runs an attempt and then waits for others, so that a new goroutine,
// with its stack still to grow, isn't needed for each.
func (s *session) worker(a *attempt) {
	for {
		s.finish(a, a.run())
		select {
		case a = <-s.work:
		case <-s.ctx.Done():
			return
		}
	}
}

// finish passes on the report of an attempt that has ended. One whose lease is
// gone gives its slot back without a report.
func (s *session) finish(a *attempt, report protocol.Report) {
	s.mu.Lock()
	silent := a.isGone() || s.ctx.Err() != nil
	if silent {
		delete(s.held, a.lease.LeaseRef)
	} else {
		s.held[a.lease.LeaseRef] = nil
	}
	s.mu.Unlock()
	if silent {
		s.wakeClaim()
	} else {
		s.reports.add(report)
	}
	s.attempts.Done()
}

// settle gives back the slots of leases whose reports were answered.
func (s *session) settle(reports []protocol.Report) {
	s.mu.Lock()
	for _, report := range reports {
		delete(s.held, report.LeaseRef)
	}
	s.mu.Unlock()
	s.wakeClaim()
}

func (s *session) wakeClaim() {
	select {
	case s.wake <- struct{}{}:
	default: // it is going to look anyway
	}
}

// freeSlots is how many orders there is room for now.
func (s *session) freeSlots() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.fenced {
		return 0
	}
	return s.cfg.Processes - len(s.held)
}

// leases are the held leases, for a heartbeat.
func (s *session) leases() []protocol.LeaseRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := make([]protocol.LeaseRef, 0, len(s.held))
	for ref, a := range s.held {
		if a == nil || !a.isGone() {
			refs = append(refs, ref)
		}
	}
	return refs
}

func (s *session) runningAttempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, a := range s.held {
		if a != nil {
			running++
		}
	}
	return running
}

// longestEnd is how long the running attempts may take to end: the grace, and
// for processes what their output may need.
func (s *session) longestEnd() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := time.Duration(0)
	for _, a := range s.held {
		switch {
		case a == nil:
		case a.handler != nil:
			longest = max(longest, a.grace())
		default:
			longest = max(longest, a.grace()+escapedOutputWait+outputFlushWait)
		}
	}
	return max(longest, s.cfg.Grace)
}

// stuckHandlers names the running attempts that are handlers.
func (s *session) stuckHandlers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for ref, a := range s.held {
		if a != nil && a.handler != nil {
			names = append(names, fmt.Sprintf("%s (order %d)", a.lease.Job.Name, ref.Order))
		}
	}
	return names
}
