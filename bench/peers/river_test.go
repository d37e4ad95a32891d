package peers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/bench"
	"github.com/siding-dev/siding/internal/db/embedded"
)

func TestParseRiver(t *testing.T) {
	t.Parallel()
	want := riverBest
	want.MaxWorkers, want.FetchCooldown, want.AddBatch = 7, 3*time.Millisecond, 11
	got, err := ParseRiver(bench.Options{"workers": "7", "cooldown": "3ms", "batch": "11"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}

	for option, value := range map[string]string{"workers": "0", "adders": "x", "cooldown": "5", "poll": "-1s", "threads": "4"} {
		if _, err := ParseRiver(bench.Options{option: value}); err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%s=%s: error is %v, want one that names the option", option, value, err)
		}
	}
}

func TestRiverSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	r := NewRiver(riverBest)
	if text := r.Settings(bench.Work{}); strings.Contains(text, "without") {
		t.Errorf("plain work is called incomplete: %s", text)
	}
	text := r.Settings(bench.Work{Keys: 1_000, PenalisedQueues: 2})
	if !strings.Contains(text, "without keys and penalised queues") {
		t.Errorf("settings don't say what is missing: %s", text)
	}
}

// Every order is done, with adding before and beside the work, with a last
// batch that isn't full, and nothing stays behind on the server.
func TestRiverDoesTheWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	postgres, err := embedded.Start(ctx, embedded.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server, err := bench.NewServer(postgres.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]RiverSettings{}
	for name, options := range map[string]bench.Options{
		"best":                   {},
		"several of everything":  {"clients": "2", "adders": "3", "batch": "70", "workers": "20"},
		"more adders than batch": {"adders": "4", "batch": "1000"},
	} {
		if settings[name], err = ParseRiver(options); err != nil {
			t.Fatal(err)
		}
	}
	var entrants []bench.Entrant
	for name, s := range settings {
		entrants = append(entrants, bench.Entrant{Name: name, New: func() bench.Runner { return NewRiver(s) }})
	}
	for _, preload := range []bool{false, true} {
		work := bench.Work{Orders: 501, ArgBytes: 200, Preload: preload}
		runs, err := bench.Compare(ctx, server, entrants, work, 1, func(bench.Run) {})
		if err != nil {
			t.Fatalf("preload %t: %v", preload, err)
		}
		for _, run := range runs {
			r := run.Result
			if r.Added != 501 || r.Done != 501 || r.AddElapsed <= 0 || r.Elapsed <= r.AddElapsed {
				t.Errorf("%s, preload %t: %+v", run.Entrant, preload, r)
			}
		}
	}

	conn, err := pgx.Connect(ctx, postgres.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var left int
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_database WHERE datname LIKE 'bench%'").Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d databases are left", left)
	}
}
