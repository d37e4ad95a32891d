package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// maxHeartbeat bounds the interval, whatever the session says: a claimed lease
// that isn't acknowledged by a heartbeat within 10 s goes back.
const maxHeartbeat = 3 * time.Second

// heartbeatLoop keeps the session: one call per interval with all leases. It
// fences the session when none was acknowledged for the time to live, counted
// from when the last acknowledged one was sent, which is before the controller
// began to count.
func (s *session) heartbeatLoop() {
	interval, ttl := min(s.info.Heartbeat(), maxHeartbeat), s.info.TTL()
	// A timer of its own, as the call below may hang for all we know.
	fence := time.AfterFunc(max(ttl-time.Since(s.opened), 0), s.fence)
	defer fence.Stop()

	retry := newBackoff()
	retry.max = interval
	pause := interval
	var drained <-chan struct{} = s.drained
	for s.heartbeatPause(pause, &drained) {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(s.ctx, min(s.cfg.CallTimeout, ttl/3))
		reply, err := s.controller.Heartbeat(ctx, protocol.HeartbeatRequest{
			Session: s.info.ID, Leases: s.leases(), Draining: s.draining(),
		})
		cancel()
		switch {
		case err == nil:
			fence.Reset(max(ttl-time.Since(sent), 0))
			retry.reset()
			pause = max(interval-time.Since(sent), 0)
			s.unfence()
			s.obey(reply)
		case s.ctx.Err() != nil:
			return
		case errors.Is(err, protocol.ErrSessionGone):
			if !s.closing.Load() {
				s.gone()
			}
			return
		case errors.Is(err, protocol.ErrRefused):
			s.fail(fmt.Errorf("heartbeat: %w", err))
			pause = interval
		default:
			pause = retry.next()
			s.log.Warn("heartbeat failed", "error", err, "again_in", pause)
		}
	}
}

// heartbeatPause waits for the next heartbeat; the first one after the session
// began to drain is sent at once, so that other members of its clusters are
// called. It is false when the session has ended.
func (s *session) heartbeatPause(pause time.Duration, drained *<-chan struct{}) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-*drained:
		*drained = nil // from now on only the timer counts
	case <-s.ctx.Done():
		return false
	}
	return s.ctx.Err() == nil
}

// draining reports whether the session takes no new attempts.
func (s *session) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// obey carries out what a heartbeat's answer asks for.
func (s *session) obey(reply protocol.HeartbeatReply) {
	for _, stop := range reply.Stop {
		s.end(stop.LeaseRef, stopError{reason: stop.Reason})
	}
	for _, ref := range reply.Gone {
		s.end(ref, errGone)
	}
}

// fence is what happens when the controller can't be reached for the time to
// live: nothing is started any more and, unless the configuration says
// otherwise, the jobs are killed.
func (s *session) fence() {
	s.mu.Lock()
	s.fenced = true
	running := len(s.held)
	s.mu.Unlock()
	s.log.Error("controller not reached for the session's time to live", "ttl", s.info.TTL(), "leases", running, "jobs", s.cfg.Unreachable)
	if s.cfg.Unreachable == EndJobs {
		s.each(func(a *attempt) { a.end(errUnreachable) })
	}
}

func (s *session) unfence() {
	s.mu.Lock()
	lifted := s.fenced
	s.fenced = false
	s.mu.Unlock()
	if lifted {
		s.log.Info("controller reached again, the session has survived")
		s.wakeClaim()
	}
}
