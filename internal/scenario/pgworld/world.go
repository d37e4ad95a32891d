// Package pgworld is the World of scenarios on the real product: definitions,
// orders, attachments, sessions, claims, reports and sweepers go through the
// same code and the same SQL as in production, in a Postgres schema of their
// own whose clock only moves when told. It holds no rule of the product.
package pgworld

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/forecast"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/scenario"
	"github.com/siding-dev/siding/internal/schema"
	"github.com/siding-dev/siding/internal/why"
)

// person decides whatever a scenario's people decide.
var person = order.Person{Name: "scenario"}

// anyGap is the longest pause between two sweeps that loses nobody: the clock
// of a scenario jumps, and that is no outage.
const anyGap = 100 * 365 * 24 * time.Hour

// closeTimeout limits what is done when the caller's context may be over.
const closeTimeout = 30 * time.Second

// World implements scenario.World. It is used by one goroutine.
type World struct {
	db          *db.DB
	catalog     *catalog.Catalog
	orders      *order.Orders
	attachments *attachment.Attachments
	dispatch    *dispatch.Dispatch
	keeper      *keeper.Keeper
	why         *why.Reasons
	queues      *queue.Queues
	forecasts   *forecast.Forecasts

	// agents that have a session, by name.
	agents map[string]*agentRun
	// queueAt is the queue of each attempt when it started, by lease number.
	queueAt map[int64]string
	// digest and marking are the statements of Fingerprint and mark, made when
	// first needed.
	digest, marking string
	// settled is the mark of the state in which sweepers had nothing to do.
	settled string
	// owned says that Close drops the schema.
	owned bool
}

var _ scenario.World = (*World)(nil)

// agentRun is one run of an agent's process, as the world plays it.
type agentRun struct {
	session protocol.SessionID
	// lost agents send no heartbeats.
	lost bool
}

// Open creates a schema with a random name in the database at url, a direct
// connection, and returns an empty world in it. Close drops the schema.
func Open(ctx context.Context, url string) (*World, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("open world: %w", err)
	}
	s, err := db.NewSchema("scenario_" + hex.EncodeToString(random[:]))
	if err != nil {
		return nil, fmt.Errorf("open world: %w", err)
	}
	d, err := db.Open(ctx, db.Config{URL: url, Schema: s.Name(), MaxConns: 2, PreparedStatements: true})
	if err != nil {
		return nil, fmt.Errorf("open world: %w", err)
	}
	if err := migrate(ctx, url, s); err != nil {
		err = errors.Join(err, drop(ctx, d))
		d.Close()
		return nil, fmt.Errorf("open world: %w", err)
	}
	w := New(d)
	w.owned = true
	return w, nil
}

// migrate makes the schema without telling of every step: it is nothing that
// stays.
func migrate(ctx context.Context, url string, s db.Schema) error {
	rooms, err := schema.Routines()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, db.MigrateConfig{URL: url, Schema: s, Routines: rooms, Clock: db.ScenarioClock, Logger: quiet()})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// New returns a world in a migrated, empty schema with the scenario clock,
// which stays the caller's.
func New(d *db.DB) *World {
	x := dispatch.New(d, dispatch.Config{Logger: quiet()})
	return &World{
		db:          d,
		catalog:     catalog.New(d, db.NoWaker{}),
		orders:      order.New(d, db.NoWaker{}),
		attachments: attachment.New(d, db.NoWaker{}),
		dispatch:    x,
		keeper:      keeper.New(d, db.NoWaker{}, keeper.Config{MaxTickGap: anyGap, Logger: quiet()}),
		why:         why.New(d),
		queues:      queue.New(d),
		forecasts:   forecast.New(d),
		agents:      map[string]*agentRun{},
		queueAt:     map[int64]string{},
	}
}

// Close drops the schema, if the world made it, and closes its connections.
func (w *World) Close(ctx context.Context) error {
	if !w.owned {
		return nil
	}
	defer w.db.Close()
	return drop(ctx, w.db)
}

// drop removes the schemas of an installation, also when ctx is over.
func drop(ctx context.Context, d *db.DB) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, name := range []string{d.Schema.ReportName(), d.Schema.Name()} {
		if _, err := d.Pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{name}.Sanitize()+` CASCADE`); err != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
	}
	return nil
}
