package dispatch_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// A claim that waited for its turn at the agent's row picks an order that was
// held when the claim began. The order's start is behind the end that it waited
// for, and behind the moment at which it became ready.
func TestStartIsBehindWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("keyed", "keyed")
	session := r.open("a1")
	first := r.now(session, 1)[0]

	turn, err := r.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Rollback(t.Context())
	if _, err := turn.Exec(t.Context(), r.db.SQL(`SELECT FROM siding.resources WHERE name = 'a1' FOR UPDATE`)); err != nil {
		t.Fatal(err)
	}
	pid := turn.Conn().PgConn().PID()
	claimed := make(chan answer, 1)
	go func() {
		leases, err := r.dispatch.ClaimNow(t.Context(), protocol.ClaimRequest{Session: session, RequestID: uuid.NewString(), Slots: 1})
		claimed <- answer{leases, err}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !value[bool](r, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`, pid) {
		<-tick.C
	}
	if got := r.report(session, done(first)); got != "accepted" {
		t.Fatal(got)
	}
	if err := turn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.gets("the claim that waited", claimed, ids[1])
	if !value[bool](r, `
		SELECT o.started_at > x.ended_at AND o.started_at > o.ready_at AND o.leased_at = o.started_at
		FROM siding.orders o, siding.outcomes x WHERE o.id = $1 AND x.order_id = $2`, ids[1], ids[0]) {
		t.Error("the order started before its predecessor had ended")
	}
	if n := value[int](r, `SELECT count(*) FROM siding_report.key_order`); n != 0 {
		t.Errorf("%d orders are said to have overtaken", n)
	}
}
