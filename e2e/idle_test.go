package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/client"
)

const idleDefinitions = `
kind: agent
name: a1
processes: 4
---
kind: agent
name: a2
processes: 4
---
kind: workflow
name: keyed
ordering: {key: order}
steps: [{job: work, agent: a1, run: "true"}]
---
kind: workflow
name: other
ordering: {key: order}
key_space: keyed
steps: [{job: work, agent: a2, run: "true"}]
---
kind: workflow
name: free
ordering: independent
steps: [{job: work, agent: a1, run: "true"}, {job: more, agent: a2, run: "true"}]
---
kind: workflow
name: scanned
ordering: {key: order}
key_space: keyed
attachments: [{name: scan}]
steps: [{job: work, agent: a1, run: "true"}]
`

// TestIdleTransaction: an application has added orders for two keys by SQL, of
// which one also begins a queue and a workflow that nobody used before, and
// leaves its transaction open. Nothing else waits for it, and when it commits
// its orders get their place.
func TestIdleTransaction(t *testing.T) {
	t.Parallel()
	s := install(t, 1)
	s.apply(idleDefinitions + "---\nkind: queue\nname: unused\n---\nkind: workflow\nname: unused\nordering: {key: order}\nkey_space: keyed\n" +
		"steps: [{job: work, agent: a1, run: 'true'}]\n")
	s.startAgent("a1", 4, 0)
	s.startAgent("a2", 4, 0)
	stop := watchInvariants(t, s)

	idle, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Release()
	tx, err := idle.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	var held []string
	for _, orders := range []string{
		`[{"workflow": "keyed", "key": "K1"}, {"workflow": "keyed", "key": "K1"}]`,
		`[{"workflow": "unused", "key": "K2", "queue": "unused"}]`,
	} {
		rows, err := tx.Query(t.Context(), `SELECT order_id::text FROM siding.add_orders($1)`, orders)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, ids...)
	}

	open := 10 * time.Second
	if os.Getenv("E2E_LONG") != "" {
		open = time.Minute
	}
	pid := idle.Conn().PgConn().PID()
	rounds, done, longest := 0, 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < open; rounds++ {
		at := time.Now()
		done += s.goOn(t, rounds)
		longest = max(longest, time.Since(at))
		// Exactly what is to be shown; that others are done could be luck.
		if waiting := s.rows(`SELECT pid, query FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, pid); len(waiting) > 0 {
			t.Fatalf("waits for the idle transaction:\n%s", strings.Join(waiting, "\n"))
		}
	}
	if done == 0 {
		t.Fatal("nothing was done beside the idle transaction")
	}
	t.Logf("transaction open for %s: %d orders in %d rounds beside it, the longest round took %s", open, done, rounds, longest.Round(time.Millisecond))

	viewer := s.client("viewer")
	if _, err := viewer.Order(t.Context(), held[0]); !hasCode(err, "order_not_found") {
		t.Errorf("an order that isn't committed: got %v, want order_not_found", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range held {
		s.awaitState(viewer, id, "finished")
	}
	stop()
	// Their numbers are lower than those of all the others, but they arrived
	// after the commit.
	late := s.rows(`
		SELECT o.order_id FROM siding_report.orders o
		WHERE o.order_id = ANY ($1::text[]::bigint[]) AND o.key_arrival < (
			SELECT max(b.key_arrival) FROM siding_report.orders b WHERE b.key = o.key AND b.order_id <> ALL ($1::text[]::bigint[]))`, held)
	if len(late) > 0 {
		t.Errorf("arrived before orders that were there: %v", late)
	}
	for what, sql := range map[string]string{
		"orders that overtook their key": `SELECT * FROM siding_report.key_order`,
		"invariants that are broken":     `SELECT * FROM siding_report.invariants`,
		"orders that didn't finish":      `SELECT * FROM siding_report.orders WHERE state <> 'finished' AND state <> 'cancelled'`,
	} {
		if found := s.rows(sql); len(found) > 0 {
			t.Errorf("%s:\n%s", what, strings.Join(found, "\n"))
		}
	}
}

// goOn does what people and agents do all day, and waits until all of it is
// done. It returns the number of orders.
func (s *installation) goOn(t *testing.T, round int) int {
	t.Helper()
	submitter, person := s.client("submitter"), s.client("operator")
	ref := func(name string) string { return fmt.Sprintf("%s-%d", name, round) }
	orders := []client.NewOrder{
		{Workflow: "keyed", Key: "K1", Ref: ref("k1")}, {Workflow: "other", Key: "K1", Ref: ref("k1-other")},
		{Workflow: "keyed", Key: "K2", Ref: ref("k2")}, {Workflow: "other", Key: "K2", Ref: ref("k2-other")},
		{Workflow: "keyed", Key: "K3", Ref: ref("k3")}, {Workflow: "keyed", Key: ref("new"), Ref: ref("new")},
		{Workflow: "free", Ref: ref("free")}, {Workflow: "free", Ref: ref("queued"), Queue: "unused"},
		{Workflow: "scanned", Key: "K1", Ref: ref("scanned")}, {Workflow: "keyed", Key: "K1", Ref: ref("behind")},
		{Workflow: "scanned", Key: ref("gone"), Ref: ref("cancelled")},
	}
	if _, err := submitter.AddMany(t.Context(), orders); err != nil {
		t.Fatalf("add beside the idle transaction: %v", err)
	}
	if _, err := submitter.Upload(t.Context(), "ref:"+ref("scanned"), "scan", strings.NewReader("bytes"), 5); err != nil {
		t.Fatalf("upload beside the idle transaction: %v", err)
	}
	if _, err := person.Cancel(t.Context(), "ref:"+ref("cancelled"), "not wanted"); err != nil {
		t.Fatalf("cancel beside the idle transaction: %v", err)
	}
	// Definitions are read by the transaction, and yet may change.
	s.apply(strings.Replace(idleDefinitions, "processes: 4", fmt.Sprintf("processes: %d", 4+round%2), 1))
	for _, o := range orders {
		want := "finished"
		if o.Ref == ref("cancelled") {
			want = "cancelled"
		}
		s.awaitState(submitter, "ref:"+o.Ref, want)
	}
	return len(orders)
}

func hasCode(err error, code string) bool {
	p, ok := problem(err)
	return ok && p.Code == code
}
