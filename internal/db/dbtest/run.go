package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// runName matches the part of a test database's name that all databases of one
// run of a test binary share.
var runName = regexp.MustCompile(`^siding_test_\d+_\d+`)

// runLock is taken by each run for as long as it lives.
const runLock = `SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))`

// connectServer begins a run on a server.
func connectServer(ctx context.Context, address string) (*server, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the test server: %w", err)
	}
	s := &server{base: base, run: fmt.Sprintf("siding_test_%d_%d", os.Getpid(), time.Now().UnixNano())}
	if s.alive, err = pgx.Connect(ctx, address); err != nil {
		return nil, fmt.Errorf("connect to the test server: %w", err)
	}
	if s.admin, err = pgxpool.New(ctx, address); err != nil {
		return nil, fmt.Errorf("connect to the test server: %w", err)
	}
	var locked bool
	if err := s.alive.QueryRow(ctx, runLock, s.run).Scan(&locked); err != nil || !locked {
		return nil, fmt.Errorf("lock test run %s: %w", s.run, err)
	}
	if err := s.sweep(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// sweep drops the databases of runs that were killed, on a server that lives
// longer than a run.
func (s *server) sweep(ctx context.Context) error {
	names, err := s.databases(ctx, "siding_test_")
	if err != nil {
		return err
	}
	for _, name := range names {
		run := runName.FindString(name)
		if run == "" || run == s.run {
			continue
		}
		var dead bool
		if err := s.alive.QueryRow(ctx, runLock, run).Scan(&dead); err != nil {
			return fmt.Errorf("ask for test run %s: %w", run, err)
		}
		if dead {
			if err := s.drop(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// databases lists the databases whose name begins with prefix.
func (s *server) databases(ctx context.Context, prefix string) ([]string, error) {
	rows, err := s.admin.Query(ctx, `SELECT datname FROM pg_database WHERE starts_with(datname, $1::text) ORDER BY datname`, prefix)
	if err != nil {
		return nil, fmt.Errorf("list test databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list test databases: %w", err)
	}
	return names, nil
}

// drop removes a database, also when another run that sweeps was faster.
func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`)
}

// close ends the run: the server too if it is the run's own, otherwise only
// what the run made there.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var errs []error
	if s.stop == nil {
		names, err := s.databases(ctx, s.run+"_")
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, s.drop(ctx, name))
		}
	}
	s.admin.Close()
	errs = append(errs, s.alive.Close(ctx))
	if s.stop != nil {
		errs = append(errs, s.stop(ctx))
	}
	return errors.Join(errs...)
}
