package server

import (
	"context"
	"errors"
	"testing"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
)

// waiter is a controller whose claims wait for their context.
type waiter struct {
	protocol.Controller
	waiting chan struct{}
}

func (w waiter) Claim(ctx context.Context, _ protocol.ClaimRequest) ([]protocol.Lease, error) {
	close(w.waiting)
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDrainingEndsAClaim(t *testing.T) {
	t.Parallel()
	w := waiter{waiting: make(chan struct{})}
	d := newDraining(w)
	answer := make(chan error, 1)
	go func() {
		_, err := d.Claim(t.Context(), protocol.ClaimRequest{})
		answer <- err
	}()
	<-w.waiting
	d.drain()
	err := <-answer
	if refusal, ok := db.AsRefusal(err); !ok || refusal.Status != 503 {
		t.Errorf("got %v, want a 503, which makes the agent repeat the request", err)
	}
}

func TestACallersEndStaysItsOwn(t *testing.T) {
	t.Parallel()
	d := newDraining(waiter{waiting: make(chan struct{})})
	defer d.drain()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Claim(ctx, protocol.ClaimRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the caller has ended it", err)
	}
}
