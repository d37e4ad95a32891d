// Package dispatch gives orders to agents: sessions, claims, heartbeats and
// reports (docs/concepts.md, Claim, lease, report). Every replica runs one.
//
// A claim request waits at the dispatcher of its agent's line; the dispatcher
// claims for all its waiting sessions in one transaction. Reports of all
// sessions are collected and written many at a time. Nothing is kept here that
// the database doesn't know: a replica that dies loses only requests, which
// agents repeat.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/db"
)

// Config is what a Dispatch may be told. The zero value of each field means its
// default.
type Config struct {
	// ListenURL is a direct connection for LISTEN, needed where the pool goes
	// through PgBouncer. Default: the pool's URL.
	ListenURL string
	// SessionTTL is how long a session lives without a heartbeat. Default 60 s.
	SessionTTL time.Duration
	// HeartbeatInterval is how often agents are told to send one. It must leave
	// room for one before leases that were never acknowledged go back (10 s).
	// Default 3 s.
	HeartbeatInterval time.Duration
	// PollInterval is how often a line with waiting sessions is looked at when
	// nobody wakes it, with jitter. Default 1 s.
	PollInterval time.Duration
	// IntakeInterval is how often the intake looks by itself. Default 250 ms.
	IntakeInterval time.Duration
	// MaxClaim bounds the orders of one claim transaction. Default 1000.
	MaxClaim int
	// MaxReports bounds the reports of one transaction. Default 1000.
	MaxReports int
	// ReportWriters is how many report transactions run at once. Default 2.
	ReportWriters int
	// Observer is told of claims and reports. Default: nobody.
	Observer Observer
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
}

// Observer is told what was done, for metrics.
type Observer interface {
	// Claimed is called after each claim transaction.
	Claimed(orders int, took time.Duration)
	// Waited is called for each order that starts for the first time: how long
	// it was ready before, in which line (kind/name) and queue ("" for none).
	Waited(line, queue string, wait time.Duration)
	// Reported is called after each report transaction.
	Reported(reports int, took time.Duration)
}

type noObserver struct{}

func (noObserver) Claimed(int, time.Duration)           {}
func (noObserver) Waited(string, string, time.Duration) {}
func (noObserver) Reported(int, time.Duration)          {}

func (c Config) withDefaults() Config {
	if c.SessionTTL == 0 {
		c.SessionTTL = 60 * time.Second
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = 3 * time.Second
	}
	if c.PollInterval == 0 {
		c.PollInterval = time.Second
	}
	if c.IntakeInterval == 0 {
		c.IntakeInterval = 250 * time.Millisecond
	}
	if c.MaxClaim == 0 {
		c.MaxClaim = 1000
	}
	if c.MaxReports == 0 {
		c.MaxReports = 1000
	}
	if c.ReportWriters == 0 {
		c.ReportWriters = 2
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Dispatch implements protocol.Controller and db.Waker.
type Dispatch struct {
	db          *db.DB
	config      Config
	attachments *attachment.Attachments
	names       *names
	notifier    *notifier
	reports     chan *reportCall
	intake      chan struct{}

	mu       sync.Mutex
	lines    map[int32]*line              // by agent
	sessions map[protocol.SessionID]int32 // agent of each session seen here
	running  context.Context              // of Run; nil before
	group    *errgroup.Group
}

var (
	_ protocol.Controller = (*Dispatch)(nil)
	_ db.Waker            = (*Dispatch)(nil)
)

// New returns a dispatch of a schema. Claims and reports are answered while Run
// runs.
func New(d *db.DB, config Config) *Dispatch {
	config = config.withDefaults()
	if config.ListenURL == "" {
		config.ListenURL = d.Config().URL
	}
	x := &Dispatch{
		db:       d,
		config:   config,
		names:    newNames(d),
		reports:  make(chan *reportCall),
		intake:   make(chan struct{}, 1),
		lines:    map[int32]*line{},
		sessions: map[protocol.SessionID]int32{},
	}
	x.notifier = newNotifier(x)
	x.attachments = attachment.New(d, x)
	return x
}

// Run works until ctx ends. It may be called once.
func (x *Dispatch) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	x.mu.Lock()
	if x.running != nil {
		x.mu.Unlock()
		return errors.New("dispatch: Run was called twice")
	}
	x.running, x.group = ctx, group
	for _, l := range x.lines {
		x.start(l)
	}
	x.mu.Unlock()

	for range x.config.ReportWriters {
		group.Go(func() error { x.writeReports(ctx); return nil })
	}
	group.Go(func() error { x.runIntake(ctx); return nil })
	group.Go(func() error { x.notifier.run(ctx); return nil })
	group.Go(func() error { return x.listen(ctx) })
	<-ctx.Done()
	return group.Wait()
}

// start runs a line's dispatcher; the caller holds mu.
func (x *Dispatch) start(l *line) {
	ctx := x.running
	x.group.Go(func() error { l.run(ctx); return nil })
}

// line returns the dispatcher of an agent's line.
func (x *Dispatch) line(agent int32) *line {
	x.mu.Lock()
	defer x.mu.Unlock()
	l, ok := x.lines[agent]
	if !ok {
		l = newLine(x, agent)
		x.lines[agent] = l
		if x.running != nil {
			x.start(l)
		}
	}
	return l
}

// agentOf returns the agent of an open session.
func (x *Dispatch) agentOf(ctx context.Context, session protocol.SessionID) (int32, error) {
	x.mu.Lock()
	agent, ok := x.sessions[session]
	x.mu.Unlock()
	if ok {
		return agent, nil
	}
	err := x.db.Pool.QueryRow(ctx, x.db.SQL(`SELECT agent_id FROM siding.sessions WHERE session_id = $1 AND ended_at IS NULL`), int64(session)).Scan(&agent)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("session %d: %w", session, protocol.ErrSessionGone)
	}
	if err != nil {
		return 0, fmt.Errorf("session %d: %w", session, err)
	}
	x.remember(session, agent)
	return agent, nil
}

func (x *Dispatch) remember(session protocol.SessionID, agent int32) {
	x.mu.Lock()
	x.sessions[session] = agent
	x.mu.Unlock()
}

func (x *Dispatch) forget(session protocol.SessionID) {
	x.mu.Lock()
	delete(x.sessions, session)
	x.mu.Unlock()
}
