package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ListenerConfig says what a Listener listens to. The zero value of a duration
// means its default.
type ListenerConfig struct {
	// URL is a direct connection to Postgres; LISTEN doesn't work through
	// PgBouncer in transaction mode.
	URL string
	// Schema names the channel.
	Schema Schema
	// Rescan is called each time listening has begun, first and after every
	// lost connection: what was notified before has to be looked up. Never nil.
	Rescan func(ctx context.Context)
	// Notified is called with each payload. It should be quick, because later
	// notifications wait for it. Never nil.
	Notified func(ctx context.Context, payload string)
	// Logger gets lost and regained connections. Default: slog.Default().
	Logger *slog.Logger

	// ConnectTimeout limits opening the connection. Default: 5 s.
	ConnectTimeout time.Duration
	// PingEvery is how long the connection may be silent until a round trip
	// checks that it still lives. Default: 15 s.
	PingEvery time.Duration
	// PingTimeout limits that round trip. Default: 5 s.
	PingTimeout time.Duration
	// MaxBackoff is the longest pause between attempts to connect; the first is
	// a 50th of it. Default: 5 s.
	MaxBackoff time.Duration
}

// Listener receives the notifications of one installation and keeps its
// connection alive. Notifications are hints: whoever uses them also polls.
type Listener struct {
	config    ListenerConfig
	connected atomic.Bool
}

// NewListener checks the configuration; Run does the work.
func NewListener(config ListenerConfig) (*Listener, error) {
	if _, err := pgx.ParseConfig(config.URL); err != nil {
		return nil, fmt.Errorf("listener: parse URL: %w", err)
	}
	if config.Rescan == nil || config.Notified == nil {
		return nil, errors.New("listener: both handlers are needed")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&config.ConnectTimeout, 5 * time.Second},
		{&config.PingEvery, 15 * time.Second},
		{&config.PingTimeout, 5 * time.Second},
		{&config.MaxBackoff, 5 * time.Second},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("listener: negative duration %s", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return &Listener{config: config}, nil
}

// Connected reports whether the listener listens at the moment.
func (l *Listener) Connected() bool { return l.connected.Load() }

// Run listens until ctx is done and then returns nil. Lost connections are
// opened again, with growing and jittered pauses. Handlers are called one
// after the other, never at the same time, and not after Run has returned.
func (l *Listener) Run(ctx context.Context) error {
	for failures := 0; ; {
		listened, err := l.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if listened {
			failures = 0
		}
		pause := l.pause(failures)
		failures++
		l.config.Logger.Warn("listener lost its connection", "schema", l.config.Schema.Name(), "error", err, "retry_in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// pause doubles with each failure; half of it is random, so that the replicas
// don't all come back at the same moment.
func (l *Listener) pause(failures int) time.Duration {
	d := l.config.MaxBackoff
	if failures < 6 {
		d = min(d, l.config.MaxBackoff/50<<failures)
	}
	return d/2 + rand.N(d/2+1)
}

// session listens on one connection until that fails. It reports whether it
// got as far as listening.
func (l *Listener) session(ctx context.Context) (listened bool, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		l.connected.Store(false)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end) // it is lost or of no more use
	}()
	l.connected.Store(true)
	l.config.Logger.Info("listening", "schema", l.config.Schema.Name())
	l.config.Rescan(ctx)
	for {
		n, err := l.wait(ctx, conn)
		switch {
		case err != nil:
			return true, err
		case n != nil:
			l.config.Notified(ctx, n.Payload)
		}
	}
}

// connect opens a connection and begins to listen. LISTEN comes before any
// scan of the tables: what is committed after it is notified.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	limit, cancel := context.WithTimeout(ctx, l.config.ConnectTimeout)
	defer cancel()
	cc, err := pgx.ParseConfig(l.config.URL)
	if err != nil {
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	needWrites(&cc.Config) // a standby takes no LISTEN
	conn, err := pgx.ConnectConfig(limit, cc)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(limit, `LISTEN `+pgx.Identifier{l.config.Schema.Channel()}.Sanitize()); err != nil {
		_ = conn.Close(limit) // the first error counts
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

// wait returns the next notification, or nil after a silence that turned out
// to be one. A connection whose other end vanished never says so by itself.
func (l *Listener) wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	silence, cancel := context.WithTimeout(ctx, l.config.PingEvery)
	defer cancel()
	n, err := conn.WaitForNotification(silence)
	if err == nil || n != nil { // one can come together with the end of the silence
		return n, nil
	}
	if ctx.Err() != nil || silence.Err() == nil || conn.IsClosed() {
		return nil, err
	}
	limit, cancelPing := context.WithTimeout(ctx, l.config.PingTimeout)
	defer cancelPing()
	if err := conn.Ping(limit); err != nil {
		return nil, fmt.Errorf("no answer on a silent connection: %w", err)
	}
	return nil, nil // silence is neither
}
