package keeper_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/why/whytest"
)

// Two keepers that sweep at once do together what one does, each thing once.
func TestTwoKeepers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.sweep()
	r.Many("plain", "gone", 40)
	lost := r.session("a1")
	if err := r.beat(lost, r.claim(lost, 20)...); err != nil {
		t.Fatal(err)
	}
	for range 11 {
		r.later(5 * time.Second)
		r.sweep()
	}
	// Never acknowledged, and claimed by one that lives.
	r.claim(r.session("a1"), 20)
	r.Many("plain", "due", 600, `"due": "5s"`)
	r.Many("scanned", "late", 40, `"wait_limit": "5s"`)
	r.Many("locked", "locked", 5)
	r.pause("workflow", "careful", 5*time.Second)
	r.Many("careful", "paused", 40)
	r.later(5 * time.Second)

	other := keeper.New(dbtest.Replica(t, r.DB), db.NoWaker{}, keeper.Config{Logger: slog.New(slog.DiscardHandler)})
	for range 3 { // what one passes over because the other holds it comes next time
		group, ctx := errgroup.WithContext(t.Context())
		for _, k := range []*keeper.Keeper{r.keeper, other} {
			group.Go(func() error { return k.Sweep(ctx) })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	r.later(5 * time.Second) // the leases that were never acknowledged
	r.sweep()

	for what, tt := range map[string]struct {
		statement string
		want      int
	}{
		"still scheduled":    {`SELECT count(*) FROM siding.orders WHERE due_closed`, 0},
		"opened":             {`SELECT count(*) FROM siding.orders WHERE due_at IS NOT NULL AND candidate AND started_at IS NULL`, 600},
		"lost attempts":      {`SELECT count(*) FROM siding.runs WHERE outcome = 'lost'`, 20},
		"lost sessions":      {`SELECT count(*) FROM siding.events WHERE kind = 'session_lost'`, 1},
		"handed back":        {`SELECT count(*) FROM siding.runs WHERE outcome = 'handed_back'`, 20},
		"still running":      {`SELECT count(*) FROM siding.orders WHERE state = 'running'`, 0},
		"in attention":       {`SELECT count(*) FROM siding.orders WHERE state = 'attention'`, 40},
		"events of them":     {`SELECT count(*) FROM siding.events WHERE kind = 'attention'`, 40},
		"pauses that ended":  {`SELECT count(*) FROM siding.events WHERE kind = 'unpause'`, 1},
		"still paused":       {`SELECT count(*) FROM siding.orders WHERE pause_closed`, 0},
		"grants of one unit": {`SELECT count(*) FROM siding.grants`, 1},
		"orders":             {`SELECT count(*) FROM siding.orders`, 40 + 600 + 40 + 5 + 40},
	} {
		if got := whytest.Value[int](r.World, tt.statement); got != tt.want {
			t.Errorf("%s: %d, want %d", what, got, tt.want)
		}
	}
}

// Run does the duties by itself until its context ends.
func TestRun(t *testing.T) {
	t.Parallel()
	r := setup(t, []dbtest.Option{}...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	woken := make(chan struct{}, 1000)
	k := keeper.New(r.DB, wakeFunc(func() { woken <- struct{}{} }), keeper.Config{Logger: slog.New(slog.DiscardHandler)})
	go func() { done <- k.Run(ctx) }()
	r.Add(`{"workflow": "plain", "ref": "p", "due": "100ms"}`)
	for r.state("p") != "ready" {
		<-woken
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// wakeFunc is called for each wake-up.
type wakeFunc func()

func (f wakeFunc) Wake(lines ...int32) {
	if len(lines) > 0 {
		f()
	}
}

func (wakeFunc) WakeIntake() {}

// Partitions are there before their month.
func TestPartitionsAhead(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for range 7 {
		r.later(31 * 24 * time.Hour)
		r.sweep()
		r.Many("plain", "p", 1)
	}
	ahead := whytest.Value[bool](r.World, `
		SELECT bool_and(to_regclass('siding.' || parent || to_char(siding.clock() AT TIME ZONE 'UTC' + interval '2 months', '_YYYY_MM')) IS NOT NULL)
		FROM unnest('{inputs,outcomes,runs,step_outputs,output_text,events}'::text[]) AS parent`)
	if !ahead {
		t.Error("the partitions of the month after next are missing")
	}
}

// A transaction that holds vacuum back is named in the log.
func TestWarnsOfHeldSnapshots(t *testing.T) {
	t.Parallel()
	r := setup(t)
	tx, err := r.DB.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	var pid int
	if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	sweep := func(after time.Duration) string {
		var log bytes.Buffer
		k := keeper.New(r.DB, db.NoWaker{}, keeper.Config{WarnSnapshotAfter: after, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := k.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	if log := sweep(time.Nanosecond); !strings.Contains(log, "pid="+strconv.Itoa(pid)) {
		t.Errorf("the session %d is not named:\n%s", pid, log)
	}
	if log := sweep(time.Hour); log != "" {
		t.Errorf("a young transaction is named:\n%s", log)
	}
}
