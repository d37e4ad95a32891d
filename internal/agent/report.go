package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Bounds of one call.
const (
	maxReports           = 1000
	maxReportOutputBytes = 4 << 20
)

// reporter delivers reports in batches. While one batch is under way the next
// collects, so batches grow with the load and a lone report waits for nothing.
type reporter struct {
	s *session

	mu      sync.Mutex
	pending []protocol.Report
	// unsettled counts pending reports and those under way.
	unsettled int
	// settled is closed and replaced whenever unsettled becomes 0.
	settled chan struct{}
	wake    chan struct{}
}

func newReporter(s *session) *reporter {
	return &reporter{s: s, settled: make(chan struct{}), wake: make(chan struct{}, 1)}
}

func (r *reporter) add(reports ...protocol.Report) {
	if len(reports) == 0 {
		return
	}
	r.mu.Lock()
	r.pending = append(r.pending, reports...)
	r.unsettled += len(reports)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next takes the next batch off the pending reports.
func (r *reporter) next() []protocol.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, bytes := 0, 0
	for n < len(r.pending) && n < maxReports {
		bytes += len(r.pending[n].Outputs)
		if n > 0 && bytes > maxReportOutputBytes {
			break
		}
		n++
	}
	batch := r.pending[:n:n]
	r.pending = r.pending[n:]
	if len(r.pending) == 0 {
		r.pending = nil
	}
	return batch
}

func (r *reporter) loop() {
	for {
		select {
		case <-r.wake:
		case <-r.s.ctx.Done():
			return
		}
		for batch := r.next(); len(batch) > 0; batch = r.next() {
			if !r.send(batch) {
				return
			}
		}
	}
}

// send delivers one batch, however long that takes. It is false when the
// session has ended.
func (r *reporter) send(batch []protocol.Report) bool {
	s := r.s
	retry := newBackoff()
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.CallTimeout)
		results, err := s.controller.Report(ctx, s.info.ID, batch)
		cancel()
		switch {
		case err == nil:
			for _, result := range results {
				if !result.Accepted {
					s.log.Warn("report refused", "order", result.Order, "lease", result.Lease, "code", result.Code)
				}
			}
			r.settle(batch)
			return true
		case s.ctx.Err() != nil:
			return false
		case errors.Is(err, protocol.ErrSessionGone):
			s.gone()
			return false
		case errors.Is(err, protocol.ErrRefused):
			s.log.Error("reports refused for good", "reports", len(batch), "error", err)
			s.fail(fmt.Errorf("report: %w", err))
			r.settle(batch)
			return true
		}
		pause := retry.next()
		s.log.Warn("report failed", "reports", len(batch), "error", err, "again_in", pause)
		if !sleep(s.ctx, pause) {
			return false
		}
	}
}

func (r *reporter) settle(batch []protocol.Report) {
	r.s.settle(batch)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsettled -= len(batch)
	if r.unsettled == 0 {
		close(r.settled)
		r.settled = make(chan struct{})
	}
}

// flush waits until every report is settled.
func (r *reporter) flush(ctx context.Context) error {
	for {
		r.mu.Lock()
		left, settled := r.unsettled, r.settled
		r.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("%d reports left: %w", left, context.Cause(ctx))
		}
	}
}
