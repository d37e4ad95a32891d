package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Claim asks for up to req.Slots orders and waits up to req.WaitMillis for the
// first. Leases come in the order of the picks. No lease in time: an empty
// list, or ErrSessionGone.
func (x *Dispatch) Claim(ctx context.Context, req protocol.ClaimRequest) ([]protocol.Lease, error) {
	id, err := uuid.Parse(req.RequestID)
	if err != nil {
		return nil, fmt.Errorf("claim: request id: %w: %w", protocol.ErrRefused, err)
	}
	agent, err := x.agentOf(ctx, req.Session)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	call := &claimCall{
		session: req.Session, request: id, slots: min(req.Slots, x.config.MaxClaim),
		answer: make(chan claimAnswer, 1), once: req.WaitMillis <= 0,
	}
	l := x.line(agent)
	l.ask(call)
	var expired <-chan time.Time
	if !call.once {
		timer := time.NewTimer(time.Duration(req.WaitMillis) * time.Millisecond)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case a := <-call.answer:
		return x.answer(ctx, call, a)
	case <-expired:
		if l.withdraw(call) {
			return x.answer(ctx, call, claimAnswer{})
		}
		// A claim for it is under way; its answer comes, be it empty.
		select {
		case a := <-call.answer:
			return x.answer(ctx, call, a)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case <-ctx.Done():
		// If orders were claimed meanwhile, the repeated request gets them.
		l.withdraw(call)
		return nil, ctx.Err()
	}
}

// answer is what a call gets. Nothing may mean that its session has ended,
// perhaps by another replica.
func (x *Dispatch) answer(ctx context.Context, call *claimCall, a claimAnswer) ([]protocol.Lease, error) {
	if len(a.leases) > 0 || a.err != nil {
		return a.leases, a.err
	}
	var open bool
	err := x.db.Pool.QueryRow(ctx, x.db.SQL(`SELECT EXISTS (SELECT FROM siding.sessions WHERE session_id = $1 AND ended_at IS NULL)`),
		int64(call.session)).Scan(&open)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if !open {
		x.forget(call.session)
		return nil, fmt.Errorf("claim: session %d: %w", call.session, protocol.ErrSessionGone)
	}
	return nil, nil
}

type claimCall struct {
	session protocol.SessionID
	request uuid.UUID
	slots   int
	once    bool // answer after the first look, also with nothing
	answer  chan claimAnswer
	// withdrawn is set, under the line's mutex, when nobody waits for orders any
	// more while a claim is under way.
	withdrawn bool
}

type claimAnswer struct {
	leases []protocol.Lease
	err    error
}

// line is the dispatcher of one agent's line at this replica.
type line struct {
	dispatch *Dispatch
	agent    int32
	bell     chan struct{}

	mu      sync.Mutex
	waiting []*claimCall

	leaseFloor int64     // no running lease of the agent is below it
	floorAt    time.Time // when that was last looked up

	clusters atomic.Pointer[[]int32] // that the agent is a member of
}

// concerns reports whether orders of a line may be for this agent.
func (l *line) concerns(id int32) bool {
	if id == l.agent {
		return true
	}
	clusters := l.clusters.Load()
	return clusters != nil && slices.Contains(*clusters, id)
}

func newLine(x *Dispatch, agent int32) *line {
	return &line{dispatch: x, agent: agent, bell: make(chan struct{}, 1)}
}

// ring makes the dispatcher look soon.
func (l *line) ring() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

func (l *line) ask(call *claimCall) {
	l.mu.Lock()
	l.waiting = append(l.waiting, call)
	l.mu.Unlock()
	l.ring()
}

// withdraw takes a call back; false if it is being answered.
func (l *line) withdraw(call *claimCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range l.waiting {
		if c == call {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	call.withdrawn = true
	return false
}

// take removes the calls that the next claim is for.
func (l *line) take() []*claimCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots, n := 0, 0
	for n < len(l.waiting) && (n == 0 || slots+l.waiting[n].slots <= l.dispatch.config.MaxClaim) {
		slots += l.waiting[n].slots
		n++
	}
	calls := l.waiting[:n:n]
	l.waiting = append([]*claimCall(nil), l.waiting[n:]...)
	return calls
}

// putBack lets calls that got nothing wait on, before those that came later;
// those that were withdrawn meanwhile get their empty answer.
func (l *line) putBack(calls []*claimCall) {
	if len(calls) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var still []*claimCall
	for _, call := range calls {
		if call.withdrawn {
			call.answer <- claimAnswer{}
		} else {
			still = append(still, call)
		}
	}
	l.waiting = append(still, l.waiting...)
}

func (l *line) run(ctx context.Context) {
	poll := l.dispatch.config.PollInterval
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			for calls := l.take(); len(calls) > 0; calls = l.take() {
				for _, call := range calls {
					call.answer <- claimAnswer{err: ctx.Err()}
				}
			}
			return
		case <-l.bell:
		case <-timer.C:
		}
		for l.round(ctx) {
		}
		timer.Reset(poll/2 + rand.N(poll)) // jitter
	}
}

// round makes one claim for the waiting calls. It reports whether another one
// may find something.
func (l *line) round(ctx context.Context) bool {
	calls := l.take()
	if len(calls) == 0 {
		return false
	}
	answers, claimed, err := l.claim(ctx, calls)
	if err != nil {
		if ctx.Err() == nil {
			l.dispatch.config.Logger.Error("claim failed", "agent", l.agent, "error", err)
		}
		for _, call := range calls {
			call.answer <- claimAnswer{err: err}
		}
		return false
	}
	var idle []*claimCall
	for i, call := range calls {
		if len(answers[i]) > 0 || call.once {
			call.answer <- claimAnswer{leases: answers[i]}
		} else {
			idle = append(idle, call)
		}
	}
	l.putBack(idle)
	return claimed > 0
}

// claim runs the claim transaction for calls, answers per call.
func (l *line) claim(ctx context.Context, calls []*claimCall) ([][]protocol.Lease, int, error) {
	x := l.dispatch
	n := len(calls)
	sessions, requests, slots := make([]int64, n), make([]uuid.UUID, n), make([]int32, n)
	for i, c := range calls {
		sessions[i], requests[i], slots[i] = int64(c.session), c.request, int32(c.slots) // bounded by MaxClaim
	}
	l.lookAround(ctx)

	type claimed struct {
		call           int32
		lease          protocol.Lease
		step, queue    int32
		hasAttachments bool
		addedAt        time.Time
		waited         *float64 // seconds between ready and this first start
	}
	var rows []claimed
	began := time.Now()
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		rows = rows[:0]
		found, err := tx.Query(ctx, x.db.SQL(`
			SELECT request_no, order_id, lease_no, step_id, queue_id, attempt, coalesce(key, ''), has_attachments, added_at, waited_seconds
			FROM siding.claim($1, $2, $3, $4, $5)`), l.agent, sessions, requests, slots, l.leaseFloor)
		if err != nil {
			return err
		}
		for found.Next() {
			var c claimed
			if err := found.Scan(&c.call, &c.lease.Order, &c.lease.Lease, &c.step, &c.queue, &c.lease.Attempt, &c.lease.Key,
				&c.hasAttachments, &c.addedAt, &c.waited); err != nil {
				return err
			}
			rows = append(rows, c)
		}
		return found.Err()
	})
	if err != nil {
		return nil, 0, fmt.Errorf("claim: %w", err)
	}
	x.config.Observer.Claimed(len(rows), time.Since(began))
	answers := make([][]protocol.Lease, n)
	var withAttachments []*protocol.Lease
	topic, err := x.names.topic(ctx, l.agent)
	if err != nil {
		return nil, 0, err
	}
	byOrder := make(map[int64]*protocol.Lease, len(rows))
	var first, last time.Time
	for i := range rows {
		c := &rows[i]
		byOrder[c.lease.Order] = &c.lease
		if i == 0 || c.addedAt.Before(first) {
			first = c.addedAt
		}
		if c.addedAt.After(last) {
			last = c.addedAt
		}
		step, err := x.names.step(ctx, c.step)
		if err != nil {
			return nil, 0, err
		}
		c.lease.Workflow, c.lease.Version, c.lease.StepPath, c.lease.Job = step.workflow, step.version, step.path, step.job
		if c.lease.Queue, err = x.names.queue(ctx, c.queue); err != nil {
			return nil, 0, err
		}
		if c.waited != nil {
			x.config.Observer.Waited(topic, c.lease.Queue, time.Duration(*c.waited*float64(time.Second)))
		}
		if c.hasAttachments {
			withAttachments = append(withAttachments, &c.lease)
		}
	}
	if err := x.addInputs(ctx, byOrder, first, last); err != nil {
		return nil, 0, err
	}
	if err := x.addAttachments(ctx, withAttachments); err != nil {
		return nil, 0, err
	}
	for i := range rows {
		at := rows[i].call - 1
		answers[at] = append(answers[at], rows[i].lease)
	}
	return answers, len(rows), nil
}

// lookAround looks up, now and then, the agent's clusters, and the lowest lease that runs, so that
// counting what runs starts behind dead index entries. Lease numbers are drawn
// under the agent's row lock, which the one who draws holds to its commit: so
// none that isn't visible yet is below one that is.
func (l *line) lookAround(ctx context.Context) {
	if time.Since(l.floorAt) < time.Second {
		return
	}
	l.floorAt = time.Now()
	var lowest *int64
	err := l.dispatch.db.Pool.QueryRow(ctx, l.dispatch.db.SQL(`
		SELECT lease_no FROM siding.orders WHERE agent_id = $1 AND state = 'running' AND lease_no >= $2 ORDER BY lease_no LIMIT 1`),
		l.agent, l.leaseFloor).Scan(&lowest)
	if err == nil && lowest != nil {
		l.leaseFloor = *lowest
	}
	rows, err := l.dispatch.db.Pool.Query(ctx, l.dispatch.db.SQL(`SELECT cluster_id FROM siding.cluster_members WHERE agent_id = $1`), l.agent)
	if err != nil {
		return // the next look finds it
	}
	if clusters, err := pgx.CollectRows(rows, pgx.RowTo[int32]); err == nil {
		l.clusters.Store(&clusters)
	}
}

// addInputs fills in what was added with the orders.
func (x *Dispatch) addInputs(ctx context.Context, leases map[int64]*protocol.Lease, first, last time.Time) error {
	if len(leases) == 0 {
		return nil
	}
	ids := make([]int64, 0, len(leases))
	for id := range leases {
		ids = append(ids, id)
	}
	rows, err := x.db.Pool.Query(ctx, x.db.SQL(`SELECT order_id, coalesce(ref, ''), args FROM siding.inputs_of($1, $2, $3)`), ids, first, last)
	if err != nil {
		return fmt.Errorf("read inputs: %w", err)
	}
	var id int64
	var ref string
	var args []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &ref, &args}, func() error {
		leases[id].Ref, leases[id].Args = ref, json.RawMessage(args)
		args = nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("read inputs: %w", err)
	}
	return nil
}

// addAttachments fills in the attachments of leases that have some.
func (x *Dispatch) addAttachments(ctx context.Context, leases []*protocol.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	byOrder := map[int64]*protocol.Lease{}
	ids := make([]int64, len(leases))
	for i, l := range leases {
		byOrder[l.Order], ids[i] = l, l.Order
	}
	rows, err := x.db.Pool.Query(ctx, x.db.SQL(`
		SELECT order_id, name, coalesce(size, 0), coalesce(encode(sha256, 'hex'), '')
		FROM siding.attachments WHERE order_id = ANY ($1) AND upload_id IS NOT NULL AND state = 'complete' ORDER BY order_id, name`), ids)
	if err != nil {
		return fmt.Errorf("read attachments: %w", err)
	}
	var order int64
	var a protocol.Attachment
	_, err = pgx.ForEachRow(rows, []any{&order, &a.Name, &a.Size, &a.SHA256}, func() error {
		byOrder[order].Attachments = append(byOrder[order].Attachments, a)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read attachments: %w", err)
	}
	return nil
}
