package lock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var person = order.Person{Name: "test"}

const definitions = `
kind: queue
name: Q1
capacity: 3
penalty: 4
---
kind: lock
name: L1
capacity: 3
queues: [Q1]
---
kind: lock
name: L2
capacity: 2
---
kind: agent
name: a1
type: standalone
processes: 16
queues: [Q1]
---
kind: workflow
name: one
ordering: independent
defaults: {agent: a1}
steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}]}]
---
kind: workflow
name: two
ordering: {key: order}
defaults: {agent: a1}
steps: [{job: before, noop: true}, {lock: {L1: 2}, steps: [{job: j, noop: true}, {job: k, noop: true}]}, {job: after, noop: true}]
---
kind: workflow
name: alone
ordering: independent
defaults: {agent: a1}
steps: [{lock: {L1: exclusive}, steps: [{job: j, noop: true}]}]
---
kind: workflow
name: both
ordering: {key: order}
key_space: two
defaults: {agent: a1}
steps: [{lock: {L1: 1, L2: 1}, steps: [{job: j, noop: true}]}]
---
kind: workflow
name: nested
ordering: independent
defaults: {agent: a1}
steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}, {lock: {L2: exclusive}, steps: [{job: k, noop: true}]}, {job: l, noop: true}]}]
`

// world is a controller that agents drive by hand.
type world struct {
	db       *db.DB
	orders   *order.Orders
	dispatch *dispatch.Dispatch
	keeper   *keeper.Keeper
}

func setup(t *testing.T) *world {
	t.Helper()
	d := dbtest.New(t)
	docs, err := definition.Parse("definitions.yaml", []byte(definitions))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	return &world{
		db: d, orders: order.New(d, db.NoWaker{}), dispatch: dispatch.New(d, dispatch.Config{}),
		keeper: keeper.New(d, db.NoWaker{}, keeper.Config{}),
	}
}

// add adds n orders of all workflows, keys and queues.
func (w *world) add(ctx context.Context, n int) ([]int64, error) {
	type newOrder struct {
		Workflow string `json:"workflow"`
		Key      string `json:"key,omitempty"`
		Queue    string `json:"queue,omitempty"`
	}
	workflows := []string{"one", "two", "alone", "both", "nested"}
	call := make([]newOrder, n)
	for i := range call {
		call[i].Workflow = workflows[rand.IntN(len(workflows))]
		if call[i].Workflow == "two" || call[i].Workflow == "both" {
			call[i].Key = fmt.Sprintf("k%d", rand.IntN(5))
		}
		if rand.IntN(3) == 0 {
			call[i].Queue = "Q1"
		}
	}
	text, err := json.Marshal(call)
	if err != nil {
		return nil, err
	}
	added, err := w.orders.Add(ctx, text, person)
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids, err
}

// work claims, reports and sweeps until all is closed.
func (w *world) work(ctx context.Context, all <-chan struct{}) error {
	session, err := w.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 8})
	if err != nil {
		return err
	}
	for {
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		leases, err := w.dispatch.ClaimNow(ctx, protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 1 + rand.IntN(8)})
		if err != nil {
			return err
		}
		reports := make([]protocol.Report, len(leases))
		for i, l := range leases {
			reports[i] = protocol.Report{LeaseRef: l.LeaseRef, Outcome: protocol.Succeeded}
			if rand.IntN(20) == 0 {
				reports[i].Outcome = protocol.HandedBack
			}
		}
		results, err := w.dispatch.ReportNow(ctx, session.ID, reports)
		if err != nil {
			return err
		}
		for _, r := range results {
			if !r.Accepted {
				return fmt.Errorf("report of order %d: %s", r.Order, r.Code)
			}
		}
		if len(leases) == 0 {
			if _, err := w.dispatch.Intake(ctx); err != nil {
				return err
			}
			if err := w.keeper.Sweep(ctx); err != nil {
				return err
			}
		}
	}
}

// meddle lets people do things to orders.
func (w *world) meddle(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		var err error
		switch rand.IntN(4) {
		case 0:
			err = w.orders.Cancel(ctx, id, person, "test")
		case 1:
			err = w.orders.Move(ctx, id, order.First, 0, person, "test")
		case 2:
			err = w.orders.Assign(ctx, id, "Q1", person, "test")
		case 3:
			if err = w.orders.Suspend(ctx, id, false, person, "test"); err == nil {
				err = w.orders.Resume(ctx, id, person, "test")
			}
		}
		if _, refused := db.AsRefusal(err); err != nil && !refused {
			return err
		}
	}
	return nil
}

// look returns, from one snapshot, which locks are held beyond what they have
// and how many orders have ended.
func (w *world) look(ctx context.Context) (over []string, ended int, err error) {
	err = pgx.BeginTxFunc(ctx, w.db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, w.db.SQL(`SELECT count(*) FROM siding.outcomes`)).Scan(&ended); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, w.db.SQL(`
			SELECT r.name || ': ' || coalesce(sum(g.weight), 0) || ' shared, ' || count(*) FILTER (WHERE g.weight IS NULL) || ' exclusive'
			FROM siding.resources r JOIN siding.grants g ON g.lock_id = r.resource_id
			GROUP BY r.resource_id
			HAVING sum(g.weight) > r.capacity OR count(*) > 1 AND bool_or(g.weight IS NULL)`))
		if err != nil {
			return err
		}
		over, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return over, ended, err
}

// watch looks again and again, and closes all when every order has ended.
func (w *world) watch(ctx context.Context, orders int, all chan<- struct{}) error {
	for {
		over, ended, err := w.look(ctx)
		switch {
		case err != nil:
			return err
		case len(over) > 0:
			return fmt.Errorf("held beyond what there is: %v", over)
		case ended == orders:
			close(all)
			return nil
		}
	}
}

// TestLookSeesTooMuch: the test below would notice.
func TestLookSeesTooMuch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	one, two := 1, 2
	for _, test := range []struct {
		name   string
		grants []*int // weights; nil is exclusive
		over   int
	}{
		{"full", []*int{&one, &two}, 0},
		{"more than the capacity", []*int{&two, &two}, 1},
		{"exclusive", []*int{nil}, 0},
		{"exclusive beside shared", []*int{nil, &one}, 1},
		{"two exclusive", []*int{nil, nil}, 1},
	} {
		if _, err := w.db.Pool.Exec(t.Context(), w.db.SQL(`DELETE FROM siding.grants`)); err != nil {
			t.Fatal(err)
		}
		for i, weight := range test.grants {
			_, err := w.db.Pool.Exec(t.Context(), w.db.SQL(`
				INSERT INTO siding.grants (order_id, lock_id, version_id, block_path, weight, granted_at)
				SELECT $1, resource_id, 1, '1', $2, now() FROM siding.resources WHERE name = 'L1'`), i+1, weight)
			if err != nil {
				t.Fatal(err)
			}
		}
		over, _, err := w.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(over) != test.over {
			t.Errorf("%s: sees %v", test.name, over)
		}
	}
}

// TestLocksUnderLoad: with several agents and people at work no lock is ever
// held beyond its capacity, no deadlock gets through, every order ends, and
// nothing is held in the end.
func TestLocksUnderLoad(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const calls, each = 3, 40
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	all := make(chan struct{})
	for range 3 {
		group.Go(func() error { return w.work(ctx, all) })
	}
	for range calls {
		group.Go(func() error {
			ids, err := w.add(ctx, each)
			if err != nil {
				return err
			}
			return w.meddle(ctx, ids[:each/5])
		})
	}
	group.Go(func() error { return w.watch(ctx, calls*each, all) })
	if err := group.Wait(); err != nil {
		var left []string
		rows, qerr := w.db.Pool.Query(t.Context(), w.db.SQL(`
			SELECT concat_ws(' ', o.id, o.state, 'line', o.line_id, 'lock', o.lock_closed, 'key', o.key, o.key_closed, 'started', o.started_at IS NOT NULL, 'stop', o.stop)
			FROM siding.orders o ORDER BY o.id LIMIT 30`))
		if qerr == nil {
			left, qerr = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		t.Fatalf("%v\nleft: %q", errors.Join(err, qerr), left)
	}
	var grants int
	err := w.db.Pool.QueryRow(t.Context(), w.db.SQL(`
		SELECT count(*) FROM siding.grants`)).Scan(&grants)
	if err != nil {
		t.Fatal(err)
	}
	if grants > 0 {
		t.Errorf("%d grants are left", grants)
	}
}
