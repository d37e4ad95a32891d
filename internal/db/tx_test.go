package db_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/db"
)

func mustExec(t *testing.T, d *db.DB, statement string) {
	t.Helper()
	if _, err := d.Pool.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, d *db.DB, query string) (n int) {
	t.Helper()
	if err := d.Pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func TestTxCommitsOrRollsBack(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	mustExec(t, d, `CREATE TABLE public.t (x int)`)
	insert := func(then error) error {
		return d.Tx(t.Context(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `INSERT INTO public.t VALUES (1)`); err != nil {
				return err
			}
			return then
		})
	}
	if err := insert(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error of the transaction: got %v, want that of the function", err)
	}
	if n := count(t, d, `SELECT count(*) FROM public.t`); n != 0 {
		t.Errorf("%d rows after a rollback", n)
	}
	if err := insert(nil); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d, `SELECT count(*) FROM public.t`); n != 1 {
		t.Errorf("%d rows after a commit, want 1", n)
	}
	func() {
		defer func() { _ = recover() }()
		_ = d.Tx(t.Context(), func(tx pgx.Tx) error { // it panics
			_, _ = tx.Exec(t.Context(), `INSERT INTO public.t VALUES (2)`) // as above
			panic("in the middle")
		})
	}()
	if n := count(t, d, `SELECT count(*) FROM public.t`); n != 1 {
		t.Errorf("%d rows after a panic, want 1", n)
	}
	if n := d.Pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// Two transactions lock two rows in opposite order and wait for each other
// before the second lock, so the first round is a deadlock for certain.
func TestTxIsRepeatedAfterADeadlock(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	mustExec(t, d, `CREATE TABLE public.t (id int PRIMARY KEY, n int NOT NULL); INSERT INTO public.t VALUES (1, 0), (2, 0)`)
	var runs atomic.Int32
	var both sync.WaitGroup
	both.Add(2)
	add := func(ctx context.Context, first, second int) error {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() })
		return d.Tx(ctx, func(tx pgx.Tx) error {
			runs.Add(1)
			if _, err := tx.Exec(ctx, `UPDATE public.t SET n = n + 1 WHERE id = $1`, first); err != nil {
				return err
			}
			met()
			if _, err := tx.Exec(ctx, `UPDATE public.t SET n = n + 1 WHERE id = $1`, second); err != nil {
				return fmt.Errorf("second row: %w", err)
			}
			return nil
		})
	}
	g, ctx := errgroup.WithContext(t.Context())
	g.Go(func() error { return add(ctx, 1, 2) })
	g.Go(func() error { return add(ctx, 2, 1) })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := runs.Load(); n < 3 {
		t.Errorf("the functions ran %d times, so there was no deadlock", n)
	}
	if n := count(t, d, `SELECT sum(n) FROM public.t`); n != 4 {
		t.Errorf("the rows sum up to %d, want 4: each transaction once", n)
	}
}

func TestTxRepeats(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{MaxAttempts: 3})
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"serialization failure": {&pgconn.PgError{Code: "40001"}, 3},
		"deadlock":              {fmt.Errorf("x: %w", &pgconn.PgError{Code: "40P01"}), 3},
		"lock timeout":          {&pgconn.PgError{Code: "55P03"}, 3},
		"unique violation":      {&pgconn.PgError{Code: "23505"}, 1},
		"refusal":               {db.Refuse("no", 409, "no"), 1},
		"unknown outcome":       {fmt.Errorf("%w: %w", db.ErrCommitUnknown, &pgconn.PgError{Code: "40001"}), 1},
		"any other":             {io.EOF, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			err := d.Tx(t.Context(), func(pgx.Tx) error { runs++; return test.err })
			if runs != test.want {
				t.Errorf("ran %d times, want %d", runs, test.want)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v in it", err, test.err)
			}
		})
	}
}

func TestCommitError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		unknown bool
	}{
		"refused":          {&pgconn.PgError{Code: "23503", SeverityUnlocalized: "ERROR"}, false},
		"serialization":    {&pgconn.PgError{Code: "40001", SeverityUnlocalized: "ERROR"}, false},
		"rolled back":      {pgx.ErrTxCommitRollback, false},
		"server shut down": {&pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}, true},
		"connection lost":  {io.ErrUnexpectedEOF, true},
		"deadline":         {context.DeadlineExceeded, true},
	} {
		if got := errors.Is(db.CommitError(test.err), db.ErrCommitUnknown); got != test.unknown {
			t.Errorf("%s: outcome unknown: got %v, want %v", name, got, test.unknown)
		}
	}
}

func TestTxKeepsItsDeadlines(t *testing.T) {
	t.Parallel()
	sleep := func(d *db.DB) error {
		return d.Tx(t.Context(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT pg_sleep(3600)`)
			return err
		})
	}
	t.Run("statement", func(t *testing.T) {
		t.Parallel()
		d := open(t, db.Config{StatementTimeout: 50 * time.Millisecond})
		var pg *pgconn.PgError
		if err := sleep(d); !errors.As(err, &pg) || pg.Code != "57014" {
			t.Errorf("got %v, want that the server cancels the statement", err)
		}
		if n := count(t, d, `SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'`); n != 0 {
			t.Errorf("statement_timeout is %d after the transaction", n)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		t.Parallel()
		d := open(t, db.Config{StatementTimeout: time.Hour, TransactionTimeout: 100 * time.Millisecond})
		if err := sleep(d); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the client gives up", err)
		}
		if n := count(t, d, `SELECT 1`); n != 1 {
			t.Error("the pool doesn't work any more")
		}
	})
}

func TestReadOnlyConnectionIsClosed(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{MaxConns: 1})
	mustExec(t, d, `CREATE TABLE public.t (x int)`)
	mustExec(t, d, `SET default_transaction_read_only = on`)
	_, err := d.Pool.Exec(t.Context(), `INSERT INTO public.t VALUES (1)`)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "25006" {
		t.Fatalf("got %v, want that the write is refused", err)
	}
	// The setting belonged to that connection. The pool has only one.
	mustExec(t, d, `INSERT INTO public.t VALUES (1)`)
}

func TestTxWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{PreparedStatements: false, MaxConns: 1})
	err := d.Tx(t.Context(), func(tx pgx.Tx) error {
		var sum int
		return tx.QueryRow(t.Context(), `SELECT $1::int + cardinality($2::text[])`, 40, []string{"a", "b"}).Scan(&sum)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, d, `SELECT count(*) FROM pg_prepared_statements`); n != 0 {
		t.Errorf("%d prepared statements", n)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := db.Config{URL: "postgres://h/d"}
	if err := good.Validate(); err != nil {
		t.Errorf("valid configuration: %v", err)
	}
	for name, change := range map[string]func(*db.Config){
		"no URL":      func(c *db.Config) { c.URL = "" },
		"bad URL":     func(c *db.Config) { c.URL = "postgres://h:port/d" },
		"schema":      func(c *db.Config) { c.Schema = "A" },
		"connections": func(c *db.Config) { c.MaxConns = -1 },
		"attempts":    func(c *db.Config) { c.MaxAttempts = -1 },
		"too short":   func(c *db.Config) { c.StatementTimeout = time.Microsecond },
		"negative":    func(c *db.Config) { c.ConnectTimeout = -time.Second },
	} {
		c := good
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := db.Open(t.Context(), c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
