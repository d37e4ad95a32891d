// Package dbtest gives each test a database of its own, so that all tests run
// in parallel. A server is chosen or started once per test binary (see
// server.go); the schema is migrated once into a template database, of which
// every test gets a copy.
//
// It installs the routines of all rooms, so the tests of a room that use it
// stand in the room's external test package (package order_test).
package dbtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/schema"
)

// cleanupTimeout limits what is done after a test, whose context is over.
const cleanupTimeout = 30 * time.Second

// Option changes what New gives.
type Option func(*options)

type options struct {
	clock  db.ClockKind
	config db.Config
}

// WithScenarioClock gives a schema whose clock only moves when told. Without
// it the schema has the production clock.
func WithScenarioClock() Option {
	return func(o *options) { o.clock = db.ScenarioClock }
}

// WithConfig opens the pool with other settings than the defaults (10
// connections, prepared statements). URL and Schema are filled in.
func WithConfig(config db.Config) Option {
	return func(o *options) { o.config = config }
}

// New returns a pool on a fresh, migrated database. Both are gone after the
// test.
func New(t testing.TB, opts ...Option) *db.DB {
	t.Helper()
	o := options{clock: db.ProductionClock, config: db.Config{PreparedStatements: true}}
	for _, opt := range opts {
		opt(&o)
	}
	o.config.URL = createDatabase(t, template(t, o.clock))
	return open(t, o.config)
}

// Replica returns another pool on the database of d, as another controller
// would have it.
func Replica(t testing.TB, d *db.DB) *db.DB {
	t.Helper()
	return open(t, d.Config())
}

// EmptyURL returns the address of a fresh database without the schema. It is
// gone after the test.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return createDatabase(t, "template0")
}

func open(t testing.TB, config db.Config) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

// templates has the name of the migrated database per kind of clock, made when
// first needed.
var templates = map[db.ClockKind]func() (string, error){
	db.ProductionClock: sync.OnceValues(func() (string, error) { return makeTemplate(db.ProductionClock) }),
	db.ScenarioClock:   sync.OnceValues(func() (string, error) { return makeTemplate(db.ScenarioClock) }),
}

func template(t testing.TB, clock db.ClockKind) string {
	t.Helper()
	name, err := templates[clock]()
	if err != nil {
		t.Fatalf("migrate the template database: %v", err)
	}
	return name
}

func makeTemplate(clock db.ClockKind) (string, error) {
	s, err := theServer()
	if err != nil {
		return "", err
	}
	name := s.name("template_" + string(clock))
	ctx := context.Background() // outlives the test that needs it first
	if err := s.exec(ctx, `CREATE DATABASE "`+name+`" TEMPLATE template0`); err != nil {
		return "", err
	}
	if err := schema.Migrate(ctx, s.databaseURL(name), db.Schema{}, clock); err != nil {
		return "", err
	}
	return name, nil
}

var databases atomic.Int64

// createDatabase copies a template and returns the copy's address.
func createDatabase(t testing.TB, from string) string {
	t.Helper()
	s, err := theServer()
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name := s.name(fmt.Sprint(databases.Add(1)))
	if err := s.exec(t.Context(), `CREATE DATABASE "`+name+`" TEMPLATE "`+from+`"`); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	return s.databaseURL(name)
}

// exec runs one statement on the server's own database.
func (s *server) exec(ctx context.Context, statement string) error {
	if _, err := s.admin.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// name returns the name of a database of this run.
func (s *server) name(suffix string) string { return s.run + "_" + suffix }

// databaseURL is the server's address with another database.
func (s *server) databaseURL(name string) string {
	u := *s.base
	u.Path = "/" + name
	return u.String()
}
