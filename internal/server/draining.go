package server

import (
	"context"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
)

// draining is a controller that can send away those who wait for work while it
// goes on taking reports.
type draining struct {
	protocol.Controller
	stopping context.Context
	drain    context.CancelFunc
}

func newDraining(c protocol.Controller) *draining {
	d := &draining{Controller: c}
	d.stopping, d.drain = context.WithCancel(context.Background())
	return d
}

// Claim fails once the controller is stopping. The agent asks again with the
// same request id, here or elsewhere, so orders that were claimed for it in
// that moment aren't lost.
func (d *draining) Claim(ctx context.Context, req protocol.ClaimRequest) ([]protocol.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.stopping, cancel)()
	leases, err := d.Controller.Claim(ctx, req)
	if err != nil && d.stopping.Err() != nil {
		return nil, db.Refuse("unavailable", 503, "the controller is stopping")
	}
	return leases, err
}
