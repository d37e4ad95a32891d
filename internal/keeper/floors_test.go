package keeper_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/why/whytest"
)

const (
	addPlain = `SELECT siding.add_orders('[{"workflow": "plain"}]')`
	hidden   = `
		SELECT count(*) FROM siding.orders o JOIN siding.lines l ON l.line_id = o.line_id
		WHERE o.candidate AND NOT o.late AND o.position < l.floor`
)

func begin(ctx context.Context, d *db.DB) (pgx.Tx, error) {
	return d.Pool.Begin(ctx)
}

// A transaction that is open while floors are raised, however often, finds its
// orders claimable once it commits: also the very first order, and one whose
// transaction is the newest of all.
func TestFloorWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"before any order": 0, "after others": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.Exec(`SELECT siding.tick('1 h')`)
			for range before {
				r.Exec(addPlain)
			}
			r.Exec(`SELECT siding.raise_floors()`)
			tx, err := begin(t.Context(), r.DB)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), r.DB.SQL(addPlain)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				r.Exec(`SELECT siding.raise_floors()`)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := whytest.Value[int](r.World, hidden); n != 0 {
				t.Errorf("%d orders are hidden by a floor", n)
			}
			if got := len(r.claim(r.session("a1"), 100)); got != before+1 {
				t.Errorf("%d orders can be claimed, want %d", got, before+1)
			}
		})
	}
}

// Where the transaction has written before, a number read now may belong to a
// transaction that is younger: then nothing is noted.
func TestFloorInsideAnotherTransaction(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Exec(`SELECT siding.tick('1 h')`)
	tx, err := begin(t.Context(), r.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), r.DB.SQL(`SELECT pg_current_xact_id(), siding.raise_floors()`)); err != nil {
		t.Fatal(err)
	}
	var noted bool
	if err := tx.QueryRow(t.Context(), r.DB.SQL(`SELECT floor_xmax IS NOT NULL FROM siding.keeper_ticks`)).Scan(&noted); err != nil {
		t.Fatal(err)
	}
	if noted {
		t.Error("a bound was noted that doesn't hold")
	}
}

// Floors do rise behind what has ended.
func TestFloorRises(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Many("plain", "p", 5)
	session := r.session("a1")
	r.claim(session, 3)
	r.sweep()
	// Other tests of this server have transactions open too; the floor waits
	// for those that were under way.
	for range 10_000 {
		r.sweep()
		floor := whytest.Value[int64](r.World, `SELECT floor FROM siding.lines WHERE line_id = (SELECT resource_id FROM siding.resources WHERE name = 'a1')`)
		if floor == r.ID("p4")<<20 {
			return
		}
		if floor > r.ID("p4")<<20 {
			t.Fatalf("floor %d is above the first candidate %d", floor, r.ID("p4")<<20)
		}
	}
	t.Error("the floor never rose")
}

// Whatever transactions add and in which order they end: a floor hides no
// candidate.
func TestFloorsNeverHideCandidates(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Exec(`SELECT siding.tick('1 h')`)
	session := r.session("a1")
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		open := map[int]pgx.Tx{}
		defer func() {
			for _, tx := range open {
				_ = tx.Rollback(ctx)
			}
		}()
		end := func(n int, commit bool) {
			tx := open[n]
			if tx == nil {
				return
			}
			delete(open, n)
			err := tx.Rollback
			if commit {
				err = tx.Commit
			}
			if err := err(ctx); err != nil {
				rt.Fatal(err)
			}
		}
		check := func() {
			if n := whytest.Value[int](r.World, hidden); n != 0 {
				rt.Fatalf("%d orders are hidden by a floor", n)
			}
		}
		transaction := rapid.IntRange(0, 2)
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				n := transaction.Draw(rt, "transaction")
				if open[n] == nil {
					tx, err := begin(ctx, r.DB)
					if err != nil {
						rt.Fatal(err)
					}
					open[n] = tx
				}
				workflow := rapid.SampledFrom([]string{"plain", "careful", "locked"}).Draw(rt, "workflow")
				if _, err := open[n].Exec(ctx, r.DB.SQL(`SELECT siding.add_orders(jsonb_build_array(jsonb_build_object('workflow', $1::text)))`), workflow); err != nil {
					rt.Fatal(err)
				}
			},
			"commit":    func(rt *rapid.T) { end(transaction.Draw(rt, "transaction"), true) },
			"roll back": func(rt *rapid.T) { end(transaction.Draw(rt, "transaction"), false) },
			"raise":     func(*rapid.T) { r.Exec(`SELECT siding.raise_floors()`) },
			"intake":    func(*rapid.T) { r.Exec(`SELECT siding.intake(2)`) },
			"claim":     func(*rapid.T) { r.claim(session, 1) },
			"":          func(*rapid.T) { check() },
		})
		for n := range 3 {
			end(n, true)
			check()
		}
	})
}
