package db_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/siding-dev/siding/internal/db"
)

func TestTxReturnsWhatSQLRefuses(t *testing.T) {
	t.Parallel()
	d := open(t, db.Config{})
	err := d.Tx(t.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `DO $$ BEGIN
			RAISE EXCEPTION 'queue % is listed', 'Q1' USING ERRCODE = 'SD409', CONSTRAINT = 'queue_in_use',
				DETAIL = '{"by": ["L1"]}', HINT = 'remove it there first';
		END $$`)
		return fmt.Errorf("remove queue: %w", err)
	})
	var got *db.Refusal
	if !errors.As(err, &got) {
		t.Fatalf("got %T: %v, want a refusal", err, err)
	}
	want := &db.Refusal{Code: "queue_in_use", Status: 409, Message: "queue Q1 is listed", Detail: `{"by": ["L1"]}`, Hint: "remove it there first"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(db.Refusal{})); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "SD409" {
		t.Errorf("the Postgres error can't be reached in %v", err)
	}
}

func TestAsRefusal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		code   string
		status int // 0: no refusal
	}{
		"nil":               {nil, "", 0},
		"another error":     {io.EOF, "", 0},
		"another SQLSTATE":  {&pgconn.PgError{Code: "23505", ConstraintName: "x"}, "", 0},
		"SQL":               {&pgconn.PgError{Code: "SD422", ConstraintName: "bad_key"}, "bad_key", 422},
		"SQL, wrapped":      {fmt.Errorf("add: %w", &pgconn.PgError{Code: "SD404", ConstraintName: "no_order"}), "no_order", 404},
		"SQL, without code": {&pgconn.PgError{Code: "SD400"}, "refused", 400},
		"not a status":      {&pgconn.PgError{Code: "SD200"}, "", 0},
		"not digits":        {&pgconn.PgError{Code: "SD4X0"}, "", 0},
		"Go":                {db.Refuse("too_big", 413, "%d bytes", 7), "too_big", 413},
		"Go, wrapped":       {fmt.Errorf("put: %w", db.Refuse("too_big", 413, "x")), "too_big", 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := db.AsRefusal(test.err)
			if ok != (test.status != 0) {
				t.Fatalf("AsRefusal(%v) = %v, %v", test.err, got, ok)
			}
			if ok && (got.Code != test.code || got.Status != test.status) {
				t.Errorf("got %s %d, want %s %d", got.Code, got.Status, test.code, test.status)
			}
			if wrapped := db.Wrap(test.err); ok != errors.As(wrapped, new(*db.Refusal)) || !errors.Is(wrapped, test.err) {
				t.Errorf("Wrap(%v) = %#v", test.err, wrapped)
			}
		})
	}
}

func TestRefuseKeepsItsCause(t *testing.T) {
	t.Parallel()
	r := db.Refuse("unreadable", 400, "read %s: %w", "x", io.EOF)
	if !errors.Is(r, io.EOF) || r.Message != "read x: EOF" {
		t.Errorf("got %#v", r)
	}
}
