package db

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readOnlyTransaction is the SQLSTATE of a write on a connection whose server
// takes none (any more).
const readOnlyTransaction = "25006"

// DB is a connection pool for one installation.
type DB struct {
	// Pool is for single reads. Writes, and reads that need a deadline kept by
	// the server, go through Tx.
	Pool *pgxpool.Pool

	// Schema is the schema of the installation.
	Schema Schema

	config Config
	texts  sync.Map // SQL text as written -> with the real schema names
}

// Open checks the configuration, opens a pool and makes one round trip. No
// startup parameter is added to those that the URL gives, because PgBouncer
// refuses most of them.
func Open(ctx context.Context, config Config) (*DB, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	config = config.WithDefaults()
	schema, err := NewSchema(config.Schema)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	pc, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		return nil, fmt.Errorf("open database: parse URL: %w", err)
	}
	pc.MaxConns = config.MaxConns
	pc.ConnConfig.ConnectTimeout = config.ConnectTimeout
	needWrites(&pc.ConnConfig.Config)
	if !config.PreparedStatements {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		pc.ConnConfig.StatementCacheCapacity = 0
		pc.ConnConfig.DescriptionCacheCapacity = 0
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	return &DB{Pool: pool, Schema: schema, config: config}, nil
}

// needWrites makes connections refuse a standby, and close themselves when
// their server turns into one: such a connection never works again, but a pool
// would hand it out for ever.
func needWrites(c *pgconn.Config) {
	if c.ValidateConnect == nil {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	keep := c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == readOnlyTransaction {
			return false
		}
		return keep == nil || keep(conn, err)
	}
}

// Close closes the pool and waits until every connection is given back.
func (d *DB) Close() { d.Pool.Close() }

// Config returns the configuration the pool was opened with, defaults filled
// in, for opening another pool or a listener on the same database.
func (d *DB) Config() Config { return d.config }

// SQL returns text with the real schema names, as Schema.SQL does. Results are
// kept, so it is cheap in a hot path; text must be a constant of the program,
// not built from data.
func (d *DB) SQL(text string) string {
	if d.Schema.Name() == DefaultSchema {
		return text
	}
	if known, ok := d.texts.Load(text); ok {
		return known.(string)
	}
	real := d.Schema.SQL(text)
	d.texts.Store(text, real)
	return real
}

// Notify sends the payloads on the installation's channel in a transaction of
// its own. Postgres serialises all notifying commits of a server, so callers
// coalesce before they call it, and never notify inside a larger transaction.
func (d *DB) Notify(ctx context.Context, payloads ...string) error {
	if len(payloads) == 0 {
		return nil
	}
	return d.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_notify($1::text, p) FROM unnest($2::text[]) AS p`, d.Schema.Channel(), payloads)
		if err != nil {
			return fmt.Errorf("notify: %w", err)
		}
		return nil
	})
}
