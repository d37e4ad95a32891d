package dbtest_test

import (
	"testing"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNewGivesEachTestItsOwnDatabase(t *testing.T) {
	t.Parallel()
	first, second := dbtest.New(t), dbtest.New(t)
	if _, err := first.Pool.Exec(t.Context(), `CREATE TABLE public.mine (x int)`); err != nil {
		t.Fatal(err)
	}
	exists := func(d *db.DB) (exists bool) {
		if err := d.Pool.QueryRow(t.Context(), `SELECT to_regclass('public.mine') IS NOT NULL`).Scan(&exists); err != nil {
			t.Fatal(err)
		}
		return exists
	}
	if !exists(first) || exists(second) {
		t.Errorf("the table exists in the first: %v, in the second: %v; want true, false", exists(first), exists(second))
	}
	if !exists(dbtest.Replica(t, first)) {
		t.Error("a replica doesn't see the table of the pool it belongs to")
	}
}

func TestNewChoosesTheClock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		opts []dbtest.Option
		want string
	}{
		{nil, "production"},
		{[]dbtest.Option{dbtest.WithScenarioClock()}, "scenario"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t, test.opts...)
			var got string
			if err := d.Pool.QueryRow(t.Context(), d.SQL(`SELECT clock_kind FROM siding.installation`)).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("clock kind: got %q, want %q", got, test.want)
			}
		})
	}
}

func TestEmptyURLHasNoSchema(t *testing.T) {
	t.Parallel()
	status, err := db.MigrateStatus(t.Context(), db.MigrateConfig{URL: dbtest.EmptyURL(t)})
	if err != nil {
		t.Fatal(err)
	}
	if status.Current != 0 || status.Clock != "" {
		t.Errorf("an empty database has version %d and clock %q", status.Current, status.Clock)
	}
}
