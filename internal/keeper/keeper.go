// Package keeper is what stands behind every wake-up: sweepers that open due
// orders, end waits that took too long, recover what agents lost, keep the
// modes of lines, make partitions and refresh counts. Every replica runs one;
// each duty is a short transaction, and rows or locks that another replica
// holds are left to it.
package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/db"
)

// Config is what a Keeper may be told. The zero value of each field means its
// default.
type Config struct {
	// SessionTTL is how long a session lives without a heartbeat. Default 60 s.
	SessionTTL time.Duration
	// MaxTickGap is the longest pause of all sweepers that doesn't begin the
	// time anew that silent sessions are given. Default 5 s.
	MaxTickGap time.Duration
	// AcknowledgeWithin is when a lease that no heartbeat named goes back.
	// Default 10 s.
	AcknowledgeWithin time.Duration
	// WarnSnapshotAfter is when a session that holds vacuum back is named in the
	// log. Default 1 min.
	WarnSnapshotAfter time.Duration
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.SessionTTL == 0 {
		c.SessionTTL = 60 * time.Second
	}
	if c.MaxTickGap == 0 {
		c.MaxTickGap = 5 * time.Second
	}
	if c.AcknowledgeWithin == 0 {
		c.AcknowledgeWithin = 10 * time.Second
	}
	if c.WarnSnapshotAfter == 0 {
		c.WarnSnapshotAfter = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Keeper runs the duties.
type Keeper struct {
	db     *db.DB
	waker  db.Waker
	config Config
}

// New returns a keeper of a schema.
func New(d *db.DB, waker db.Waker, config Config) *Keeper {
	return &Keeper{db: d, waker: waker, config: config.withDefaults()}
}

// duty is one thing to look after.
type duty struct {
	name  string
	every time.Duration
	// do works until nothing is left, or one batch; it returns whether there
	// may be more.
	do func(ctx context.Context) (more bool, err error)
}

// batch bounds the rows of one transaction of a duty.
const batch = 500

func (k *Keeper) duties() []duty {
	return []duty{
		{"due", 100 * time.Millisecond, k.counted(`SELECT opened, lines FROM siding.open_due($1)`)},
		{"wait limits", 500 * time.Millisecond, k.counted(`SELECT expired, lines FROM siding.expire_waits($1)`)},
		{"line modes", 500 * time.Millisecond, k.lines(`SELECT siding.update_line_modes()`)},
		{"pauses", 500 * time.Millisecond, k.lines(`SELECT lines FROM siding.expire_pauses()`)},
		{"pause gates", 500 * time.Millisecond, k.counted(`SELECT marked, lines FROM siding.mark_paused($1)`)},
		{"pause gates to open", 500 * time.Millisecond, k.counted(`SELECT unmarked, lines FROM siding.unmark_paused($1)`)},
		{"sessions", time.Second, k.recover},
		{"unacknowledged leases", time.Second, k.counted(`SELECT looked_at, lines FROM siding.return_unacknowledged($1, $2)`, k.config.AcknowledgeWithin)},
		{"answered claims", time.Minute, k.alone("answered claims", `SELECT siding.forget_claims()`)},
		{"floors", time.Second, k.alone("floors", `SELECT siding.raise_floors()`)},
		{"locks", 2 * time.Second, k.lines(`SELECT siding.grant_locks(ARRAY(SELECT resource_id FROM siding.resources WHERE kind = 'lock' AND removed_at IS NULL))`)},
		{"held snapshots", 30 * time.Second, k.warnHeldSnapshots},
		{"partitions", time.Hour, k.alone("partitions", `SELECT siding.ensure_partitions()`)},
	}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range k.duties() {
		group.Go(func() error {
			k.keep(ctx, d)
			return nil
		})
	}
	return group.Wait()
}

// keep does one duty again and again.
func (k *Keeper) keep(ctx context.Context, d duty) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for {
			more, err := d.do(ctx)
			if err != nil && ctx.Err() == nil {
				k.config.Logger.Error("sweeper failed", "duty", d.name, "error", err)
			}
			if err != nil || !more {
				break
			}
		}
		timer.Reset(d.every*3/4 + rand.N(d.every/2)) // jitter
	}
}

// Sweep does every duty once, until nothing is left, and returns the first
// error. For scenarios and tests.
func (k *Keeper) Sweep(ctx context.Context) error {
	for _, d := range k.duties() {
		for {
			more, err := d.do(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			if !more {
				break
			}
		}
	}
	return nil
}

// counted is a duty that handles up to batch rows ($1) and tells how many.
func (k *Keeper) counted(statement string, args ...any) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var n int
		var lines []int32
		err := k.db.Tx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, k.db.SQL(statement), append([]any{batch}, args...)...).Scan(&n, &lines)
		})
		if err != nil {
			return false, err
		}
		k.waker.Wake(lines...)
		return n > 0, nil
	}
}

// lines is a duty that returns lines to wake.
func (k *Keeper) lines(statement string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var lines []int32
		err := k.db.Tx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, k.db.SQL(statement)).Scan(&lines)
		})
		if err != nil {
			return false, err
		}
		k.waker.Wake(lines...)
		return false, nil
	}
}

// alone is a duty that one replica does at a time.
func (k *Keeper) alone(purpose, statement string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		return false, k.db.Tx(ctx, func(tx pgx.Tx) error {
			var mine bool
			if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, k.db.Schema.AdvisoryKey(purpose)).Scan(&mine); err != nil || !mine {
				return err
			}
			var ignored any
			return tx.QueryRow(ctx, k.db.SQL(statement)).Scan(&ignored)
		})
	}
}

// recover ticks, and ends sessions that were silent for a whole TTL.
func (k *Keeper) recover(ctx context.Context) (bool, error) {
	var lines []int32
	err := k.db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, k.db.SQL(`SELECT siding.tick($1)`), k.config.MaxTickGap); err != nil {
			return err
		}
		return tx.QueryRow(ctx, k.db.SQL(`SELECT siding.lose_sessions($1)`), k.config.SessionTTL).Scan(&lines)
	})
	if err != nil {
		return false, err
	}
	k.waker.Wake(lines...)
	return len(lines) > 0, nil
}
