package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/db/embedded"
)

// fakeRunner reports what it is told to, and whether it was torn down.
type fakeRunner struct {
	setupErr error
	lost     int // orders that it adds and doesn't finish
	torn     *int
}

func (fakeRunner) Name() string         { return "fake" }
func (fakeRunner) Settings(Work) string { return "none" }

func (f fakeRunner) Setup(context.Context, string) error { return f.setupErr }

func (f fakeRunner) Run(_ context.Context, w Work) (Result, error) {
	return Result{Added: w.Orders, Done: w.Orders - f.lost, Elapsed: 1, AddElapsed: 1}, nil
}

func (f fakeRunner) Teardown(context.Context) error {
	*f.torn++
	return nil
}

func TestCompare(t *testing.T) {
	t.Parallel()
	postgres, err := embedded.Start(t.Context(), embedded.Config{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	server, err := NewServer(postgres.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		runner   fakeRunner
		rounds   int
		wantErr  string
		wantRuns int
		wantTorn int
	}{
		"all well":             {rounds: 2, wantRuns: 4, wantTorn: 4},
		"orders were lost":     {runner: fakeRunner{lost: 1}, rounds: 2, wantErr: "A, round 1: run: 5 orders were asked for, 5 were added, 4 were done", wantTorn: 1},
		"set-up fails halfway": {runner: fakeRunner{setupErr: errors.New("no schema")}, rounds: 2, wantErr: "A, round 1: set up: no schema", wantTorn: 1},
	}
	// One after another: runs of a comparison use fixed database names.
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			torn := 0
			tc.runner.torn = &torn
			enter := func(name string) Entrant { return Entrant{Name: name, New: func() Runner { return tc.runner }} }
			var order []string
			runs, err := Compare(t.Context(), server, []Entrant{enter("A"), enter("B")}, Work{Orders: 5, ArgBytes: 200}, tc.rounds, func(r Run) {
				order = append(order, r.Entrant)
			})
			switch {
			case tc.wantErr == "" && err != nil:
				t.Fatal(err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Fatalf("error is %v, want %q", err, tc.wantErr)
			}
			if len(runs) != tc.wantRuns || torn != tc.wantTorn {
				t.Errorf("%d runs, %d torn down; want %d and %d", len(runs), torn, tc.wantRuns, tc.wantTorn)
			}
			if got := strings.Join(order, " "); tc.wantErr == "" && got != "A B A B" {
				t.Errorf("the entrants ran in the order %s, want A B A B", got)
			}
		})
	}
}
