package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// topicIntake is what NOTIFY says when orders wait for their place.
const topicIntake = "intake"

// notifyPause is the least time between two NOTIFY transactions of a replica:
// they are serialised over the whole database.
const notifyPause = 20 * time.Millisecond

// Wake tells the dispatchers of lines, here and at the other replicas, that
// there may be work.
func (x *Dispatch) Wake(lines ...int32) {
	if len(lines) == 0 {
		return
	}
	x.mu.Lock()
	for _, id := range lines {
		x.ring(id)
	}
	x.mu.Unlock()
	x.notifier.add(lines)
}

// ring makes the dispatchers that a line concerns look; the caller holds mu.
func (x *Dispatch) ring(id int32) {
	for _, l := range x.lines {
		if l.concerns(id) {
			l.ring()
		}
	}
}

// WakeIntake makes this replica's intake look.
func (x *Dispatch) WakeIntake() {
	select {
	case x.intake <- struct{}{}:
	default:
	}
}

// notifier tells other replicas which lines may have work: once per line and
// pause, from a transaction of its own.
type notifier struct {
	dispatch *Dispatch
	bell     chan struct{}
	mu       sync.Mutex
	pending  map[int32]struct{}
}

func newNotifier(x *Dispatch) *notifier {
	return &notifier{dispatch: x, bell: make(chan struct{}, 1), pending: map[int32]struct{}{}}
}

func (n *notifier) add(lines []int32) {
	n.mu.Lock()
	for _, id := range lines {
		n.pending[id] = struct{}{}
	}
	n.mu.Unlock()
	select {
	case n.bell <- struct{}{}:
	default:
	}
}

func (n *notifier) take() []int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := make([]int32, 0, len(n.pending))
	for id := range n.pending {
		lines = append(lines, id)
	}
	clear(n.pending)
	return lines
}

func (n *notifier) run(ctx context.Context) {
	timer := time.NewTimer(notifyPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.bell:
		}
		n.send(ctx)
		timer.Reset(notifyPause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (n *notifier) send(ctx context.Context) {
	var topics []string
	for _, id := range n.take() {
		topic, err := n.dispatch.names.topic(ctx, id)
		if err != nil {
			continue // the poll of the others finds it
		}
		topics = append(topics, topic)
	}
	if err := n.dispatch.db.Notify(ctx, topics...); err != nil && ctx.Err() == nil {
		n.dispatch.config.Logger.Warn("notify failed, others will find the work by polling", "error", err)
	}
}

// listen passes on what other replicas and applications notify.
func (x *Dispatch) listen(ctx context.Context) error {
	listener, err := db.NewListener(db.ListenerConfig{
		URL:    x.config.ListenURL,
		Schema: x.db.Schema,
		Rescan: func(context.Context) {
			x.WakeIntake()
			x.mu.Lock()
			defer x.mu.Unlock()
			for _, l := range x.lines {
				l.ring()
			}
		},
		Notified: func(ctx context.Context, payload string) {
			if payload == topicIntake {
				x.WakeIntake()
				return
			}
			id, err := x.names.lineOf(ctx, payload)
			if err != nil {
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.ring(id)
		},
		Logger: x.config.Logger,
	})
	if err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	return listener.Run(ctx)
}

// intakeBatch is how many orders one intake transaction places.
const intakeBatch = 500

// runIntake places orders when it is woken, and looks by itself besides.
func (x *Dispatch) runIntake(ctx context.Context) {
	every := x.config.IntakeInterval
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.intake:
		case <-timer.C:
		}
		for {
			placed, err := x.Intake(ctx)
			if err != nil && ctx.Err() == nil {
				x.config.Logger.Error("intake failed", "error", err)
			}
			if err != nil || placed < intakeBatch {
				break
			}
		}
		timer.Reset(every/2 + rand.N(every)) // jitter
	}
}

// Intake places up to a batch of orders and returns how many.
func (x *Dispatch) Intake(ctx context.Context) (int, error) {
	var placed int
	var lines []int32
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, x.db.SQL(`SELECT placed, lines FROM siding.intake($1)`), intakeBatch).Scan(&placed, &lines)
	})
	if err != nil {
		return 0, fmt.Errorf("intake: %w", err)
	}
	x.Wake(lines...)
	return placed, nil
}
