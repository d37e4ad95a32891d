package forecast_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/forecast"
	"github.com/siding-dev/siding/internal/order"
)

// What keeps a resource from giving anything keeps it in the forecast.
func TestForecastOfWhatStandsStill(t *testing.T) {
	t.Parallel()
	d, _ := setup(t)
	f, o := forecast.New(d), order.New(d, db.NoWaker{})
	count := func(kind, name string) int {
		t.Helper()
		picks, err := f.Of(t.Context(), kind, name, 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(picks)
	}
	apply := func(text string) {
		t.Helper()
		docs, err := definition.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
			t.Fatal(err)
		}
	}
	if agent, lock := count("agent", "a1"), count("lock", "L1"); agent != 11 || lock != 2 {
		t.Errorf("%d and %d picks", agent, lock)
	}
	for _, pause := range []struct {
		kind, name  string
		agent, lock int
	}{{"agent", "a1", 0, 2}, {"lock", "L1", 8 + 1, 0}, {"queue", "Q1", 4, 2}, {"workflow", "plain", 5, 2}} {
		if err := o.Pause(t.Context(), pause.kind, pause.name, time.Time{}, order.Person{Name: "ann"}, "test"); err != nil {
			t.Fatal(err)
		}
		if agent, lock := count("agent", "a1"), count("lock", "L1"); agent != pause.agent || lock != pause.lock {
			t.Errorf("%s %s paused: %d and %d picks, want %d and %d", pause.kind, pause.name, agent, lock, pause.agent, pause.lock)
		}
		if err := o.Unpause(t.Context(), pause.kind, pause.name, order.Person{Name: "ann"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	apply("kind: agent\nname: a1\nprocesses: 0\nqueues: [Q1]\n---\nkind: lock\nname: L1\ncapacity: 0\nqueues: [Q1]")
	if agent, lock := count("agent", "a1"), count("lock", "L1"); agent != 0 || lock != 0 {
		t.Errorf("without processes and units: %d and %d picks", agent, lock)
	}
}

// The line of a cluster has a forecast as an agent's has.
func TestForecastOfACluster(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	docs, err := definition.Parse("", []byte(`
kind: agent
name: a1
processes: 1
---
kind: agent
name: c1
type: cluster
members: [{agent: a1, priority: 1}]
---
kind: workflow
name: w
ordering: independent
steps: [{job: j, noop: true, agent: c1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	call := make([]map[string]string, 30)
	for i := range call {
		call[i] = map[string]string{"workflow": "w"}
	}
	text, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	added, err := order.New(d, db.NoWaker{}).Add(t.Context(), text, order.Person{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	picks, err := forecast.New(d).Of(t.Context(), "agent", "c1", 20)
	if err != nil || len(picks) != 20 {
		t.Fatalf("%d picks, %v", len(picks), err)
	}
	for i, p := range picks {
		if p.Order != added[i].ID {
			t.Fatalf("pick %d is order %d, want %d", i, p.Order, added[i].ID)
		}
	}
	if picks, err := forecast.New(d).Of(t.Context(), "agent", "a1", 10); err != nil || len(picks) != 0 {
		t.Errorf("the member's own line: %v, %v", picks, err)
	}
}

// Orders that somebody works on at this moment are passed over, and a forecast
// doesn't wait for them.
func TestForecastPassesHeldOrders(t *testing.T) {
	t.Parallel()
	d, ids := setup(t)
	tx, err := d.Pool.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), d.SQL(`SELECT FROM siding.orders WHERE id = ANY ($1) FOR UPDATE`), []int64{ids[3], ids[0]}); err != nil {
		t.Fatal(err)
	}
	picks, err := forecast.New(d).Of(t.Context(), "agent", "a1", 2)
	if err != nil || len(picks) != 2 || picks[0].Order != ids[4] || picks[1].Order != ids[1] {
		t.Errorf("%+v, %v", picks, err)
	}
}
