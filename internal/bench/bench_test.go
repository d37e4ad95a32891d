package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/siding-dev/siding/internal/bench"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// However the work is shaped, all orders that are added come to their end.
func TestDo(t *testing.T) {
	t.Parallel()
	args := func(n int) json.RawMessage { return fmt.Appendf(nil, `{"n": %d}`, n) }
	for name, tt := range map[string]struct {
		work     bench.Work
		settings bench.Settings
	}{
		"independent":      {bench.Work{Orders: 250}, bench.Settings{AddBatch: 100}},
		"keys":             {bench.Work{Orders: 200, Keys: 7, Args: args}, bench.Settings{Adders: 3, AddBatch: 30}},
		"penalised queues": {bench.Work{Orders: 200, PenalisedQueues: 2}, bench.Settings{Processes: 20}},
		"preloaded":        {bench.Work{Orders: 200, Preload: true, Keys: 200}, bench.Settings{ReportWriters: 1}},
		"nothing":          {bench.Work{}, bench.Settings{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.settings.Logger = slog.New(slog.DiscardHandler)
			d := dbtest.New(t)
			run := bench.New(d, tt.settings)
			result, err := run.Do(t.Context(), tt.work)
			if err := run.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if result.Added != tt.work.Orders || result.Done != tt.work.Orders || result.Elapsed < result.Adding {
				t.Errorf("%+v, want %d orders", result, tt.work.Orders)
			}
		})
	}
}

// A run that was never begun can be closed, and one that is given up ends.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	run := bench.New(dbtest.New(t), bench.Settings{Logger: slog.New(slog.DiscardHandler)})
	if err := run.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run.Do(ctx, bench.Work{Orders: 10}); err == nil {
		t.Error("it was done in no time")
	}
	if err := run.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestSettingsDefaults(t *testing.T) {
	t.Parallel()
	s := bench.Settings{AddBatch: 7}.WithDefaults()
	if s.Processes <= 0 || s.AddBatch != 7 || s.Adders <= 0 || s.ReportWriters <= 0 || s.Logger == nil {
		t.Errorf("%+v", s)
	}
}
