package db_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

var (
	first = []string{"00001_first.sql", `
-- +goose Up
CREATE SCHEMA siding_report;
CREATE TABLE siding.things (id int);
CREATE TABLE siding.kind AS SELECT current_setting('siding.clock_kind') AS kind;
-- +goose Down
DROP TABLE siding.kind;
DROP TABLE siding.things;
DROP SCHEMA siding_report CASCADE;
`}
	second = []string{"00002_second.sql", `
-- +goose Up
CREATE TABLE siding.more (id int);
-- +goose Down
DROP TABLE siding.more;
`}
	// Installing it leaves a row, so that installations can be counted.
	routine = `
CREATE TABLE IF NOT EXISTS siding.installs (channel text);
INSERT INTO siding.installs VALUES (current_setting('siding.channel'));
CREATE OR REPLACE FUNCTION siding.answer() RETURNS int LANGUAGE sql AS $$ SELECT 42 + count(*)::int * 0 FROM siding.things; $$;
CREATE OR REPLACE VIEW siding_report.answers AS SELECT siding.answer() AS answer;
`
)

// installation is one schema in a fresh database.
type installation struct {
	config db.MigrateConfig
	conn   *pgx.Conn
}

func newInstallation(t *testing.T, schema, url string, migrations fs.FS, routines ...string) *installation {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	c := db.MigrateConfig{URL: url, Schema: mustSchema(t, schema), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}.WithMigrations(migrations)
	if len(routines) > 0 {
		c.Routines = []db.Routines{{Room: "room", FS: files(routines...)}}
	}
	return &installation{c, conn}
}

func (i *installation) migrate(t *testing.T) {
	t.Helper()
	if err := db.Migrate(t.Context(), i.config); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) query(t *testing.T, query string) (got string) {
	t.Helper()
	if err := i.conn.QueryRow(t.Context(), i.config.Schema.SQL(query)).Scan(&got); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return got
}

func TestMigrateByTenAtOnce(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(append(first, second...)...), "a.sql", routine)
	g, ctx := errgroup.WithContext(t.Context())
	for range 10 {
		g.Go(func() error { return db.Migrate(ctx, i.config) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got := i.query(t, `SELECT count(*) || ' installs, ' || (SELECT count(*) FROM siding.goose_version WHERE version_id > 0) || ' migrations' FROM siding.installs`)
	if want := "1 installs, 2 migrations"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMigrateTwoSchemasOfOneDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	for _, name := range []string{"siding", "order", "mine"} { // order is a keyword
		i := newInstallation(t, name, url, files(first...), "a.sql", routine)
		i.migrate(t)
		got := i.query(t, `SELECT answer || ' ' || (SELECT channel FROM siding.installs) || ' ' || (SELECT kind FROM siding.kind) FROM siding_report.answers`)
		if want := "42 " + name + " production"; got != want {
			t.Errorf("schema %s: got %q, want %q", name, got, want)
		}
		if _, err := i.conn.Exec(t.Context(), `SELECT `+i.config.Schema.SQL(`siding.answer()`)); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
}

func TestRoutinesAreInstalledWhenTheyChange(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(first...), "a.sql", routine)
	installs := func(want string) {
		t.Helper()
		i.migrate(t)
		if got := i.query(t, `SELECT count(*)::text FROM siding.installs`); got != want {
			t.Errorf("installed %s times, want %s", got, want)
		}
	}
	installs("1")
	installs("1")
	i.config.Routines[0].FS = files("a.sql", routine+"-- changed")
	installs("2")
	i.config.Routines = append(i.config.Routines, db.Routines{Room: "other", FS: files("sub/b.sql", `SELECT 1`, "b.txt", `no SQL`)})
	installs("3")
	installs("3")
	i.config.Routines = i.config.Routines[:1]
	installs("4")
}

func TestRoutinesAreInstalledTogether(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(first...), "a.sql", routine, "b.sql", "SELECT 1;\nSELECT nonsense();")
	err := db.Migrate(t.Context(), i.config)
	if err == nil || !strings.Contains(err.Error(), "room: b.sql:2") {
		t.Errorf("got %v, want an error that names the file and the line", err)
	}
	if got := i.query(t, `SELECT (to_regproc('siding.answer') IS NULL)::text`); got != "true" {
		t.Error("one file was installed without the other")
	}
}

func TestMigrateNamesTheMigrationThatFailed(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(append(first, "00002_bad.sql", "-- +goose Up\nCREATE TABLE siding.bad (x nonsense);")...))
	err := db.Migrate(t.Context(), i.config)
	if err == nil || !strings.Contains(err.Error(), "00002_bad.sql failed after 1 others") {
		t.Errorf("got %v, want an error that names the migration", err)
	}
	if got := i.query(t, `SELECT to_regclass('siding.things')::text`); got != "siding.things" {
		t.Errorf("the migration before the failed one isn't there: %q", got)
	}
}

func TestMigrateKeepsTheClock(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(first...))
	i.config.Clock = db.ScenarioClock
	i.migrate(t)
	i.migrate(t)
	if got := i.query(t, `SELECT kind FROM siding.kind`); got != "scenario" {
		t.Errorf("the migration read the clock kind %q", got)
	}
	i.config.Clock = db.ProductionClock
	if err := db.Migrate(t.Context(), i.config); err == nil || !strings.Contains(err.Error(), "scenario clock, which never changes") {
		t.Errorf("got %v, want a refusal of the other clock", err)
	}
	i.config.Clock = "sundial"
	if err := db.Migrate(t.Context(), i.config); err == nil {
		t.Error("an unknown clock was accepted")
	}
}

func TestOlderBinaryChangesNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	newer := newInstallation(t, "siding", url, files(append(first, second...)...), "a.sql", routine)
	newer.migrate(t)
	older := newInstallation(t, "siding", url, files(first...), "a.sql", strings.Replace(routine, "42", "41", 1))
	older.migrate(t)
	if got := newer.query(t, `SELECT siding.answer()::text`); got != "42" {
		t.Errorf("the routine answers %s: the older binary has replaced it", got)
	}
}

func TestMigrateDownAndStatus(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "mine", dbtest.EmptyURL(t), files(append(first, second...)...), "a.sql", routine)
	expect := func(when string, want db.Status, applied ...bool) {
		t.Helper()
		got, err := db.MigrateStatus(t.Context(), i.config)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if diff := cmp.Diff(&want, got, cmpopts.IgnoreFields(db.Status{}, "Migrations")); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", when, diff)
		}
		var gotApplied []bool
		for _, m := range got.Migrations {
			gotApplied = append(gotApplied, !m.AppliedAt.IsZero())
		}
		if diff := cmp.Diff(applied, gotApplied); diff != "" {
			t.Errorf("%s: applied (-want +got):\n%s", when, diff)
		}
	}
	expect("before", db.Status{Target: 2}, false, false)
	if err := db.MigrateDown(t.Context(), i.config, 0); err != nil {
		t.Errorf("down on an empty database: %v", err)
	}
	i.migrate(t)
	expect("after up", db.Status{Current: 2, Target: 2, Clock: db.ProductionClock, RoutinesCurrent: true}, true, true)
	if err := db.MigrateDown(t.Context(), i.config, 1); err != nil {
		t.Fatal(err)
	}
	expect("after down", db.Status{Current: 1, Target: 2, Clock: db.ProductionClock}, true, false)
	if err := db.MigrateDown(t.Context(), i.config, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := i.conn.Exec(t.Context(), i.config.Schema.SQL(`DROP TABLE siding.installs; DROP FUNCTION siding.answer`)); err != nil {
		t.Fatal(err)
	}
	i.migrate(t)
	expect("after up again", db.Status{Current: 2, Target: 2, Clock: db.ProductionClock, RoutinesCurrent: true}, true, true)
}

// A process that migrates for longer than others want to wait.
func TestMigrateGivesUpWaiting(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, "siding", dbtest.EmptyURL(t), files(first...))
	i.config.LockTimeout = 100 * time.Millisecond
	key := i.config.Schema.AdvisoryKey("migrate")
	if _, err := i.conn.Exec(t.Context(), fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, key)); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), i.config); err == nil || !strings.Contains(err.Error(), "lock migrations of schema siding") {
		t.Errorf("got %v, want that it gives up", err)
	}
	other := i.config
	other.Schema = mustSchema(t, "other")
	if err := db.Migrate(t.Context(), other); err != nil {
		t.Errorf("another schema waits for the lock too: %v", err)
	}
}
