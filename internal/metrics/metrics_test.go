package metrics_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/metrics"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestState(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	docs, err := definition.Parse("test", []byte("{kind: agent, name: a1, processes: 1}\n---\n{kind: queue, name: q1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	orders := order.New(d, db.NoWaker{})
	person := order.Person{Name: "test"}
	if err := orders.SetLineMode(t.Context(), "a1", "strict", person, "test"); err != nil {
		t.Fatal(err)
	}
	if err := orders.Pause(t.Context(), "queue", "q1", time.Time{}, person, "test"); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP siding_line_strict 1 while nothing new passes the first blocked order of the line.
# TYPE siding_line_strict gauge
siding_line_strict{agent="a1",reason="set_by_person"} 1
# HELP siding_paused 1 for what people paused.
# TYPE siding_paused gauge
siding_paused{kind="queue",name="q1"} 1
# HELP siding_sessions Open sessions of each agent.
# TYPE siding_sessions gauge
siding_sessions{agent="a1"} 0
`
	state := metrics.NewState(d, slog.Default())
	err = testutil.CollectAndCompare(state, strings.NewReader(want), "siding_line_strict", "siding_paused", "siding_sessions")
	if err != nil {
		t.Error(err)
	}
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	d := metrics.NewDispatch(registry)
	d.Claimed(3, time.Millisecond)
	d.Reported(2, time.Millisecond)
	d.Waited("agent/a1", "", 20*time.Millisecond)
	const want = `
# HELP siding_orders_claimed_total Attempts that this replica gave to agents.
# TYPE siding_orders_claimed_total counter
siding_orders_claimed_total 3
# HELP siding_reports_total Reports of attempts that this replica wrote, refused ones included.
# TYPE siding_reports_total counter
siding_reports_total 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "siding_orders_claimed_total", "siding_reports_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(registry, "siding_ready_wait_seconds"); n != 1 {
		t.Errorf("%d series of waits, want 1", n)
	}
}
