package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/siding-dev/siding/migrations"
)

// ClockKind says what moves siding.clock() in a schema. It is chosen when the
// schema is created and never changes.
type ClockKind string

const (
	// ProductionClock is the database's own clock.
	ProductionClock ClockKind = "production"
	// ScenarioClock is an instant stored in the schema that only moves when
	// told; for scenarios and tests.
	ScenarioClock ClockKind = "scenario"
)

// MigrateConfig says what Migrate does.
type MigrateConfig struct {
	// URL is a direct connection to Postgres: through PgBouncer in transaction
	// mode the lock against other migrations wouldn't hold.
	URL string
	// Schema is created when it is missing.
	Schema Schema
	// Routines are the rooms' functions and views, installed after the
	// migrations in the order given.
	Routines []Routines
	// Clock is the kind of clock of a new schema; a schema that has the other
	// kind is refused. Default: ProductionClock.
	Clock ClockKind
	// LockTimeout is how long to wait while another process migrates.
	// Default: 5 min.
	LockTimeout time.Duration
	// Logger gets one line per migration applied. Default: slog.Default().
	Logger *slog.Logger

	migrations fs.FS // tests put in their own; otherwise the embedded ones
}

func (c MigrateConfig) withDefaults() MigrateConfig {
	if c.Clock == "" {
		c.Clock = ProductionClock
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 5 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.migrations == nil {
		c.migrations = migrations.FS
	}
	return c
}

// Migrate brings the schema to the newest version and installs the routines.
// Any number of processes may call it at once: one works, the others wait for
// it and find nothing to do. A binary that is older than the schema changes
// nothing.
//
// A migration that fails is rolled back and those before it stay; the error
// names it.
func Migrate(ctx context.Context, config MigrateConfig) error {
	config = config.withDefaults()
	if config.Clock != ProductionClock && config.Clock != ScenarioClock {
		return fmt.Errorf("migrate: unknown clock kind %q", config.Clock)
	}
	return config.alone(ctx, func(m *migrator) error {
		if err := m.prepare(ctx); err != nil {
			return err
		}
		if err := m.up(ctx); err != nil {
			return err
		}
		return m.install(ctx)
	})
}

// MigrateDown undoes all migrations above version; 0 undoes all, and leaves
// the schema with its version table. The routines are installed again by the
// next Migrate.
func MigrateDown(ctx context.Context, config MigrateConfig, version int64) error {
	config = config.withDefaults()
	return config.alone(ctx, func(m *migrator) error {
		exists, err := m.exists(ctx, versionTable)
		if err != nil || !exists {
			return err
		}
		// First, so that a failure half-way doesn't leave routines that are
		// taken for the right ones.
		if _, err := m.db.ExecContext(ctx, m.sql(`DELETE FROM siding.routines`)); err != nil {
			return fmt.Errorf("forget routines: %w", err)
		}
		provider, err := m.provider()
		if err != nil {
			return err
		}
		results, err := provider.DownTo(ctx, version)
		m.log(results)
		if err != nil {
			return fmt.Errorf("migrate schema %s down to %d: %w", m.Schema, version, err)
		}
		return nil
	})
}

// Status is what MigrateStatus found.
type Status struct {
	// Current is the newest version applied, 0 when there is none.
	Current int64
	// Target is the newest version that this binary knows.
	Target int64
	// Clock is the kind of clock, empty when the schema isn't installed.
	Clock ClockKind
	// RoutinesCurrent is true when the installed routines are this binary's.
	RoutinesCurrent bool
	// Migrations has all that this binary knows, oldest first.
	Migrations []MigrationStatus
}

// MigrationStatus is one migration in a Status.
type MigrationStatus struct {
	Version int64
	// File is the migration's file name.
	File string
	// AppliedAt is the zero time while it is pending.
	AppliedAt time.Time
}

// MigrateStatus reads how far a schema is. It changes nothing, takes no lock
// and doesn't need the schema to exist.
func MigrateStatus(ctx context.Context, config MigrateConfig) (*Status, error) {
	config = config.withDefaults()
	m, err := config.open()
	if err != nil {
		return nil, err
	}
	defer m.close()
	provider, err := m.provider()
	if err != nil {
		return nil, err
	}
	s := &Status{}
	installed, err := m.exists(ctx, versionTable)
	if err != nil {
		return nil, err
	}
	if !installed {
		for _, source := range provider.ListSources() {
			s.Migrations = append(s.Migrations, MigrationStatus{Version: source.Version, File: source.Path})
			s.Target = max(s.Target, source.Version)
		}
		return s, nil
	}
	list, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migration status of schema %s: %w", m.Schema, err)
	}
	for _, one := range list {
		s.Migrations = append(s.Migrations, MigrationStatus{Version: one.Source.Version, File: one.Source.Path, AppliedAt: one.AppliedAt})
	}
	if s.Current, s.Target, err = provider.GetVersions(ctx); err != nil {
		return nil, fmt.Errorf("migration status of schema %s: %w", m.Schema, err)
	}
	if s.Clock, err = m.storedClock(ctx); err != nil {
		return nil, err
	}
	if s.RoutinesCurrent, err = m.routinesCurrent(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// migrator is one connection at work on one schema.
type migrator struct {
	MigrateConfig
	db *sql.DB
}

// open prepares the connection. There is only one: it holds the advisory lock
// and does the work, so that losing the lock ends the work too.
func (c MigrateConfig) open() (*migrator, error) {
	cc, err := pgx.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("migrate: parse URL: %w", err)
	}
	needWrites(&cc.Config)
	db := stdlib.OpenDB(*cc)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return &migrator{MigrateConfig: c, db: db}, nil
}

func (m *migrator) close() {
	if err := m.db.Close(); err != nil {
		m.Logger.Warn("closing the migration connection", "error", err)
	}
}

// alone runs work while no other process migrates the same schema.
func (c MigrateConfig) alone(ctx context.Context, work func(*migrator) error) error {
	m, err := c.open()
	if err != nil {
		return err
	}
	// Closing the connection ends the session and with it the lock.
	defer m.close()
	if err := m.lock(ctx); err != nil {
		return err
	}
	return work(m)
}

// lock takes the schema's migration lock. It asks again and again instead of
// waiting in pg_advisory_lock: a waiting statement holds a snapshot, and a
// migration that says CREATE INDEX CONCURRENTLY would wait for that one.
func (m *migrator) lock(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, m.LockTimeout)
	defer cancel()
	for {
		var got bool
		err := m.db.QueryRowContext(wait, `SELECT pg_try_advisory_lock($1)`, m.Schema.AdvisoryKey("migrate")).Scan(&got)
		if err != nil {
			return fmt.Errorf("lock migrations of schema %s: %w", m.Schema, err)
		}
		if got {
			return nil
		}
		select {
		case <-time.After(50*time.Millisecond + rand.N(150*time.Millisecond)):
		case <-wait.Done():
			return fmt.Errorf("lock migrations of schema %s: another process has migrated for %s: %w", m.Schema, m.LockTimeout, wait.Err())
		}
	}
}

// up applies the pending migrations.
func (m *migrator) up(ctx context.Context) error {
	provider, err := m.provider()
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	m.log(results)
	if err != nil {
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			m.log(partial.Applied)
			return fmt.Errorf("migrate schema %s: %s failed after %d others were applied: %w",
				m.Schema, partial.Failed.Source.Path, len(partial.Applied), partial.Err)
		}
		return fmt.Errorf("migrate schema %s: %w", m.Schema, err)
	}
	return nil
}

func (m *migrator) log(results []*goose.MigrationResult) {
	for _, r := range results {
		m.Logger.Info("migration done", "schema", m.Schema.Name(), "file", r.Source.Path, "direction", r.Direction, "took", r.Duration)
	}
}

func (m *migrator) provider() (*goose.Provider, error) {
	store, err := newVersionStore(m.Schema)
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectCustom, m.db, schemaFS{m.migrations, m.Schema},
		goose.WithStore(store), goose.WithDisableGlobalRegistry(true), goose.WithSlog(m.Logger))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return p, nil
}

func (m *migrator) sql(text string) string { return m.Schema.SQL(text) }
