package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Routines are the SQL functions and views of one room. They are code, not
// state: every file replaces what it defines (CREATE OR REPLACE), so that all
// of them can be run again whenever one has changed.
type Routines struct {
	// Room names the room in messages and in the table of what is installed.
	Room string
	// FS has the room's files. Every *.sql of it, also in folders, is run as a
	// whole by the simple protocol, in the order of the paths.
	FS fs.FS
}

// prepare creates the schema and the tables about the installation itself, and
// checks the kind of clock.
func (m *migrator) prepare(ctx context.Context) error {
	var exists bool
	err := m.db.QueryRowContext(ctx, `SELECT to_regnamespace(quote_ident($1::text)) IS NOT NULL`, m.Schema.Name()).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for schema %s: %w", m.Schema, err)
	}
	if !exists { // asked first: IF NOT EXISTS needs the right to create all the same
		if _, err := m.db.ExecContext(ctx, m.sql(`CREATE SCHEMA siding`)); err != nil {
			return fmt.Errorf("create schema %s: %w", m.Schema, err)
		}
	}
	if exists, err = m.exists(ctx, "routines"); err != nil {
		return err
	}
	if !exists {
		if _, err := m.db.ExecContext(ctx, m.sql(createInstallation)); err != nil {
			return fmt.Errorf("prepare schema %s: %w", m.Schema, err)
		}
	}
	_, err = m.db.ExecContext(ctx, m.sql(`INSERT INTO siding.installation (clock_kind) VALUES ($1) ON CONFLICT DO NOTHING`), string(m.Clock))
	if err != nil {
		return fmt.Errorf("record the clock of schema %s: %w", m.Schema, err)
	}
	stored, err := m.storedClock(ctx)
	if err != nil {
		return err
	}
	if stored != m.Clock {
		return fmt.Errorf("schema %s has the %s clock, which never changes: can't use it with the %s clock", m.Schema, stored, m.Clock)
	}
	// For the whole session, so that migrations can ask for it as well.
	return m.settings(ctx, m.db, false)
}

// These two tables stand outside the numbered migrations, because what they
// say is needed before the first and after the last.
const createInstallation = `
CREATE TABLE siding.installation (
    singleton   boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
    clock_kind  text        NOT NULL CHECK (clock_kind IN ('production', 'scenario')),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE siding.routines (
    room            text        PRIMARY KEY,
    hash            text        NOT NULL,
    binary_version  bigint      NOT NULL,
    installed_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE siding.installation IS 'How this schema was created.';
COMMENT ON TABLE siding.routines IS
    'Which routines are installed: per room the SHA-256 of its files and the newest migration that their binary knew.';`

// settings makes what the installer knows readable for migrations and
// routines: siding.clock_kind and siding.channel, in the transaction or in the
// session.
func (m *migrator) settings(ctx context.Context, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, inTransaction bool) error {
	_, err := db.ExecContext(ctx, `
		SELECT set_config('siding.clock_kind', $1::text, $3::boolean),
		       set_config('siding.channel', $2::text, $3::boolean)`,
		string(m.Clock), m.Schema.Channel(), inTransaction)
	if err != nil {
		return fmt.Errorf("set clock kind and channel: %w", err)
	}
	return nil
}

// install runs all routines in one transaction, unless what is installed is
// the same already.
func (m *migrator) install(ctx context.Context) error {
	known, applied, err := m.versions(ctx)
	if err != nil {
		return err
	}
	if applied > known {
		// During a rolling update an old replica may start again.
		m.Logger.Warn("this binary is older than the schema, its routines are not installed",
			"schema", m.Schema.Name(), "schema_version", applied, "binary_version", known)
		return nil
	}
	current, err := m.routinesCurrent(ctx)
	if err != nil || current {
		return err
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("install routines: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
	if err := m.settings(ctx, tx, true); err != nil {
		return fmt.Errorf("install routines: %w", err)
	}
	if _, err := tx.ExecContext(ctx, m.sql(`DELETE FROM siding.routines`)); err != nil {
		return fmt.Errorf("install routines: %w", err)
	}
	for _, room := range m.Routines {
		if err := m.installRoom(ctx, tx, room, known); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("install routines: %w", err)
	}
	m.Logger.Info("routines installed", "schema", m.Schema.Name(), "rooms", len(m.Routines))
	return nil
}

func (m *migrator) installRoom(ctx context.Context, tx *sql.Tx, room Routines, version int64) error {
	files, err := room.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		text := m.sql(f.text)
		// Without arguments this is one message of the simple protocol.
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("install routines of %s: %s%s: %w", room.Room, f.path, lineOf(text, err), err)
		}
	}
	_, err = tx.ExecContext(ctx, m.sql(`INSERT INTO siding.routines (room, hash, binary_version) VALUES ($1, $2, $3)`),
		room.Room, hash(files), version)
	if err != nil {
		return fmt.Errorf("record routines of %s: %w", room.Room, err)
	}
	return nil
}

// lineOf returns ":LINE" of the place in text that a Postgres error points at,
// or "".
func lineOf(text string, err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Position < 1 {
		return ""
	}
	before := []rune(text) // positions count characters
	before = before[:min(int(pg.Position)-1, len(before))]
	return fmt.Sprintf(":%d", 1+strings.Count(string(before), "\n"))
}

// routinesCurrent compares what is installed with this binary's routines.
func (m *migrator) routinesCurrent(ctx context.Context) (bool, error) {
	rows, err := m.db.QueryContext(ctx, m.sql(`SELECT room, hash FROM siding.routines`))
	if err != nil {
		return false, fmt.Errorf("read installed routines: %w", err)
	}
	defer rows.Close() // rows.Err tells
	installed := map[string]string{}
	for rows.Next() {
		var room, sum string
		if err := rows.Scan(&room, &sum); err != nil {
			return false, fmt.Errorf("read installed routines: %w", err)
		}
		installed[room] = sum
	}
	if err := rows.Err(); err != nil {
		return false, fmt.Errorf("read installed routines: %w", err)
	}
	if len(installed) != len(m.Routines) {
		return false, nil
	}
	for _, room := range m.Routines {
		files, err := room.files()
		if err != nil {
			return false, err
		}
		if installed[room.Room] != hash(files) {
			return false, nil
		}
	}
	return true, nil
}

// versions returns the newest migration that this binary knows, and the newest
// applied.
func (m *migrator) versions(ctx context.Context) (known, applied int64, err error) {
	provider, err := m.provider()
	if err != nil {
		return 0, 0, err
	}
	applied, known, err = provider.GetVersions(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read versions of schema %s: %w", m.Schema, err)
	}
	return known, applied, nil
}

func (m *migrator) storedClock(ctx context.Context) (ClockKind, error) {
	var kind string
	if err := m.db.QueryRowContext(ctx, m.sql(`SELECT clock_kind FROM siding.installation`)).Scan(&kind); err != nil {
		return "", fmt.Errorf("read the clock of schema %s: %w", m.Schema, err)
	}
	return ClockKind(kind), nil
}

func (m *migrator) exists(ctx context.Context, table string) (bool, error) {
	var exists bool
	if err := m.db.QueryRowContext(ctx, tableExists, m.Schema.Name(), table).Scan(&exists); err != nil {
		return false, fmt.Errorf("look for table %s.%s: %w", m.Schema, table, err)
	}
	return exists, nil
}

// routineFile is one SQL file as written.
type routineFile struct{ path, text string }

// files reads the room's SQL files, sorted by path.
func (r Routines) files() ([]routineFile, error) {
	var files []routineFile
	err := fs.WalkDir(r.FS, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(p) != ".sql" {
			return err
		}
		text, err := fs.ReadFile(r.FS, p)
		files = append(files, routineFile{p, string(text)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read routines of %s: %w", r.Room, err)
	}
	slices.SortFunc(files, func(a, b routineFile) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

// hash is over the files as written: the schema's name doesn't change.
func hash(files []routineFile) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%d\x00%s", f.path, len(f.text), f.text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
