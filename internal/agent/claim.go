package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// maxClaimSlots is the protocol's limit for one request.
const maxClaimSlots = 10_000

// idleAnswer is the time below which an empty answer didn't wait for work. A
// controller that can't hold requests isn't asked in a tight loop.
const idleAnswer = 50 * time.Millisecond

// claimLoop asks for orders while there are free processes, one request at a
// time: orders that end while one is under way go into the next, so requests
// grow with the load and need no delay.
func (s *session) claimLoop(ctx context.Context) {
	idle := newBackoff()
	idle.max = time.Second
	for ctx.Err() == nil {
		slots := min(s.freeSlots(), maxClaimSlots)
		if slots <= 0 {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		leases, err := s.claim(ctx, slots)
		switch {
		case err != nil && errors.Is(err, protocol.ErrSessionGone):
			s.gone()
			return
		case err != nil && errors.Is(err, protocol.ErrRefused):
			s.fail(fmt.Errorf("claim: %w", err))
			return
		case len(leases) > 0:
			idle.reset()
			s.take(leases)
		case err == nil && time.Since(began) < idleAnswer:
			idle.pause(ctx)
		default:
			idle.reset()
		}
	}
}

// claim sends one request, repeated with its id until it is answered, refused,
// or ctx ends. Orders of an answer that was lost at the very end go back by
// themselves, as no heartbeat acknowledges them.
func (s *session) claim(ctx context.Context, slots int) ([]protocol.Lease, error) {
	req := protocol.ClaimRequest{
		Session: s.info.ID, RequestID: uuid.NewString(), Slots: slots, WaitMillis: s.cfg.ClaimWait.Milliseconds(),
	}
	retry := newBackoff()
	for {
		callCtx, cancel := context.WithTimeout(ctx, s.cfg.ClaimWait+s.cfg.CallTimeout)
		leases, err := s.controller.Claim(callCtx, req)
		cancel()
		if err == nil || errors.Is(err, protocol.ErrSessionGone) || errors.Is(err, protocol.ErrRefused) || ctx.Err() != nil {
			return leases, err
		}
		pause := retry.next()
		s.log.Warn("claim failed", "error", err, "again_in", pause)
		if !sleep(ctx, pause) {
			return nil, err
		}
	}
}
