package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
)

// OpenSession opens a session of an agent. It refuses with unknown_agent.
func (x *Dispatch) OpenSession(ctx context.Context, req protocol.OpenRequest) (protocol.Session, error) {
	var (
		id    int64
		agent int32
		lines []int32
	)
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, x.db.SQL(`SELECT session_id, agent_id, lines FROM siding.open_session($1, $2, $3, $4, $5)`),
			req.Agent, req.Processes, int64(req.Previous), req.Host, req.PID).Scan(&id, &agent, &lines)
	})
	if err != nil {
		if _, refused := db.AsRefusal(err); refused {
			return protocol.Session{}, fmt.Errorf("open session of %s: %w: %w", req.Agent, protocol.ErrRefused, err)
		}
		return protocol.Session{}, fmt.Errorf("open session of %s: %w", req.Agent, err)
	}
	x.remember(protocol.SessionID(id), agent)
	x.Wake(lines...)
	return protocol.Session{
		ID:              protocol.SessionID(id),
		HeartbeatMillis: x.config.HeartbeatInterval.Milliseconds(),
		TTLMillis:       x.config.SessionTTL.Milliseconds(),
	}, nil
}

// CloseSession ends a session. What it still runs goes back, not counted.
func (x *Dispatch) CloseSession(ctx context.Context, session protocol.SessionID) error {
	var lines []int32
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, x.db.SQL(`SELECT siding.end_session($1, 'closed')`), int64(session)).Scan(&lines)
	})
	if err != nil {
		return fmt.Errorf("close session %d: %w", session, err)
	}
	x.forget(session)
	x.Wake(lines...)
	return nil
}

// Heartbeat keeps a session alive and acknowledges its leases.
func (x *Dispatch) Heartbeat(ctx context.Context, req protocol.HeartbeatRequest) (protocol.HeartbeatReply, error) {
	orders, leases := make([]int64, len(req.Leases)), make([]int64, len(req.Leases))
	for i, l := range req.Leases {
		orders[i], leases[i] = l.Order, l.Lease
	}
	var (
		alive                  bool
		stopOrders, stopLeases []int64
		reasons                []string
		gone                   []int32
	)
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, x.db.SQL(`SELECT alive, stop_orders, stop_leases, stop_reasons, gone FROM siding.heartbeat($1, $2, $3, $4)`),
			int64(req.Session), orders, leases, req.Draining).Scan(&alive, &stopOrders, &stopLeases, &reasons, &gone)
	})
	if err != nil {
		return protocol.HeartbeatReply{}, fmt.Errorf("heartbeat of session %d: %w", req.Session, err)
	}
	if !alive {
		x.forget(req.Session)
		return protocol.HeartbeatReply{}, fmt.Errorf("heartbeat of session %d: %w", req.Session, protocol.ErrSessionGone)
	}
	var reply protocol.HeartbeatReply
	for i := range stopOrders {
		reply.Stop = append(reply.Stop, protocol.StopRequest{
			LeaseRef: protocol.LeaseRef{Order: stopOrders[i], Lease: stopLeases[i]}, Reason: reasons[i],
		})
	}
	for _, n := range gone {
		reply.Gone = append(reply.Gone, req.Leases[n-1])
	}
	return reply, nil
}

// Output stores pieces of what running attempts wrote. A piece that is there
// already, and one of a lease that doesn't run any more, is passed over.
func (x *Dispatch) Output(ctx context.Context, session protocol.SessionID, chunks []protocol.OutputChunk) error {
	n := len(chunks)
	orders, leases, streams, offsets, data := make([]int64, n), make([]int64, n), make([]string, n), make([]int64, n), make([][]byte, n)
	for i, c := range chunks {
		orders[i], leases[i], streams[i], offsets[i], data[i] = c.Order, c.Lease, c.Stream, c.Offset, c.Data
	}
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, x.db.SQL(`
			INSERT INTO siding.output_text (order_id, lease_no, written_at, stream, start_offset, data)
			SELECT c.order_id, c.lease_no, siding.clock(), c.stream, c.start_offset, c.data
			FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[]) AS c (order_id, lease_no, stream, start_offset, data)
			JOIN siding.orders o ON o.id = c.order_id AND o.lease_no = c.lease_no AND o.session_id = $1 AND o.state = 'running'
			WHERE NOT EXISTS (
				SELECT FROM siding.output_text t
				WHERE t.order_id = c.order_id AND t.lease_no = c.lease_no AND t.stream = c.stream AND t.start_offset = c.start_offset)`),
			int64(session), orders, leases, streams, offsets, data)
		return err
	})
	if err != nil {
		return fmt.Errorf("store output: %w", err)
	}
	return nil
}

// Attachment opens the bytes of an attachment of an order that the session runs.
func (x *Dispatch) Attachment(ctx context.Context, session protocol.SessionID, lease protocol.LeaseRef, name string, offset int64) (io.ReadCloser, error) {
	var held bool
	err := x.db.Pool.QueryRow(ctx, x.db.SQL(`
		SELECT true FROM siding.orders WHERE id = $1 AND lease_no = $2 AND session_id = $3 AND state = 'running'`),
		lease.Order, lease.Lease, int64(session)).Scan(&held)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("attachment %s of order %d: %w", name, lease.Order,
			db.Refuse("stale_lease", 409, "session %d doesn't hold lease %d of order %d", session, lease.Lease, lease.Order))
	}
	if err != nil {
		return nil, fmt.Errorf("attachment %s of order %d: %w", name, lease.Order, err)
	}
	body, _, err := x.attachments.Open(ctx, lease.Order, name, offset)
	return body, err
}
