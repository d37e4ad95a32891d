package invariant_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/invariant"
)

const loadDefinitions = `
kind: queue
name: Q1
capacity: 3
penalty: 2
---
kind: queue
name: Q2
capacity: 2
penalty: 4
---
kind: agent
name: a1
type: standalone
processes: 6
queues: [Q1, Q2]
---
kind: agent
name: a2
type: standalone
processes: 4
---
kind: workflow
name: free
ordering: independent
defaults: {agent: a1, max_attempts: 50, backoff: {first: 1ms, max: 5ms}}
steps: [{job: one, noop: true}]
---
kind: workflow
name: keyed
ordering: {key: order}
key_space: shared
defaults: {agent: a1, max_attempts: 50, backoff: {first: 1ms, max: 5ms}}
steps: [{job: first, noop: true}, {job: second, noop: true, agent: a2, processes: 2}]
---
kind: workflow
name: files
ordering: {key: order}
key_space: shared
wait_limit: 1h
attachments: [{name: scan}]
defaults: {agent: a2, max_attempts: 50, backoff: {first: 1ms, max: 5ms}, on_lost: attention}
steps: [{job: read, noop: true}]
`

// loadClusters are two clusters of the agents under one director.
const loadClusters = `
kind: agent
name: d1
type: director
processes: 4
---
kind: agent
name: c1
type: cluster
processes: 3
queues: [Q2]
director: d1
members: [{agent: a1, priority: 10}, {agent: a2, priority: 10}]
---
kind: agent
name: c2
type: cluster
director: d1
members: [{agent: a1, priority: 10}, {agent: a2, priority: 1}]
---
kind: workflow
name: pool
ordering: independent
defaults: {agent: c1, max_attempts: 50, backoff: {first: 1ms, max: 5ms}}
steps: [{job: j, noop: true, processes: 2}, {job: k, noop: true, agent: c2}]
`

var loadLimits = map[string]int{"a1": 6, "a2": 4}

// load is two controllers with agents, people and applications at work.
type load struct {
	t        *testing.T
	replicas [2]*replica
	watcher  *replica // has connections of its own, which nobody ends
	referee  *invariant.Referee
	done     chan struct{} // closed when every order has ended
	faults   bool          // errors of the database are expected; what failed is done again

	mu  sync.Mutex
	ids []int64
}

// watcherName is the application_name of connections that are left alone.
const watcherName = "watcher"

func newLoad(t *testing.T, faults bool, opts ...dbtest.Option) *load {
	t.Helper()
	d := dbtest.New(t, opts...)
	config := d.Config()
	config.URL += map[bool]string{true: "&", false: "?"}[strings.Contains(config.URL, "?")] + "application_name=" + watcherName
	calm, err := db.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calm.Close)
	l := &load{
		t: t, replicas: [2]*replica{newReplica(d, 0), newReplica(dbtest.Replica(t, d), 0)}, watcher: newReplica(calm, 0),
		referee: invariant.NewReferee(loadLimits), done: make(chan struct{}), faults: faults,
	}
	l.watcher.apply(t, t.Context(), loadDefinitions+"---"+loadClusters)
	return l
}

// again reports whether to do it once more: an error that isn't a refusal, where
// such errors are expected.
func (l *load) again(ctx context.Context, err error) bool {
	if err == nil || !l.faults || ctx.Err() != nil {
		return false
	}
	_, refused := db.AsRefusal(err)
	return !refused && !errors.Is(err, protocol.ErrSessionGone)
}

// persist does f until it is done or refused.
func (l *load) persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !l.again(ctx, err) {
			return err
		}
	}
}

// serve runs a controller.
func (l *load) serve(ctx context.Context, r *replica) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.dispatch.Run(ctx) })
	group.Go(func() error { return r.keeper.Run(ctx) })
	return group.Wait()
}

func (l *load) open(ctx context.Context, r *replica, agent string, previous protocol.SessionID) (s protocol.Session, err error) {
	err = l.persist(ctx, func() error {
		s, err = r.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: agent, Processes: 4, Previous: previous})
		return err
	})
	return s, err
}

// work is an agent: it claims, reports, and now and then dies and comes back.
func (l *load) work(ctx context.Context, r *replica, agent string) error {
	session, err := l.open(ctx, r, agent, 0)
	if err != nil {
		return err
	}
	for {
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		req := protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 1 + rand.IntN(4), WaitMillis: 100}
		var leases []protocol.Lease
		if err := l.persist(ctx, func() error { leases, err = r.dispatch.Claim(ctx, req); return err }); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		l.referee.Started(agent, leases)
		if len(leases) > 0 && rand.IntN(15) == 0 {
			if session, err = l.die(ctx, r, agent, session.ID, leases); err != nil {
				return err
			}
			continue
		}
		refs := make([]protocol.LeaseRef, len(leases))
		for i, lease := range leases {
			refs[i] = lease.LeaseRef
		}
		err := l.persist(ctx, func() error {
			_, err := r.dispatch.Heartbeat(ctx, protocol.HeartbeatRequest{Session: session.ID, Leases: refs})
			return err
		})
		if err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		if err := l.report(ctx, r, session.ID, leases); err != nil {
			return err
		}
	}
}

// die ends a session without a word, begins the next one, and then says what is
// long out of date.
func (l *load) die(ctx context.Context, r *replica, agent string, old protocol.SessionID, leases []protocol.Lease) (protocol.Session, error) {
	for _, lease := range leases {
		l.referee.Lost(lease.LeaseRef)
	}
	session, err := l.open(ctx, r, agent, old)
	if err != nil {
		return session, err
	}
	return session, l.report(ctx, r, old, leases)
}

func (l *load) report(ctx context.Context, r *replica, session protocol.SessionID, leases []protocol.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	reports := make([]protocol.Report, len(leases))
	for i, lease := range leases {
		reports[i] = protocol.Report{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded, Outputs: json.RawMessage(`{"a": 1}`)}
		switch rand.IntN(12) {
		case 0:
			reports[i].Outcome = protocol.Failed
		case 1:
			reports[i].Outcome = protocol.HandedBack
		}
		l.referee.Ending(lease.LeaseRef)
	}
	var results []protocol.ReportResult
	times := 1 + rand.IntN(6)/5 // now and then twice
	for range times {
		var err error
		if err := l.persist(ctx, func() error { results, err = r.dispatch.Report(ctx, session, reports); return err }); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		for _, result := range results {
			l.referee.Reported(result)
		}
	}
	return nil
}

// add adds orders, each call with references, so that it can be repeated.
func (l *load) add(ctx context.Context, r *replica, calls int) error {
	for range calls {
		call := make([]map[string]any, 1+rand.IntN(8))
		for i := range call {
			call[i] = map[string]any{"workflow": []string{"free", "keyed", "keyed", "files", "pool"}[rand.IntN(5)], "ref": uuid.NewString()}
			if call[i]["workflow"] == "keyed" || call[i]["workflow"] == "files" {
				call[i]["key"] = fmt.Sprint("k", rand.IntN(6))
			}
			if rand.IntN(2) == 0 {
				call[i]["queue"] = []string{"Q1", "Q2"}[rand.IntN(2)]
			}
			if rand.IntN(10) == 0 {
				call[i]["due"] = "20ms"
			}
		}
		text, err := json.Marshal(call)
		if err != nil {
			return err
		}
		var ids []int64
		err = l.persist(ctx, func() error {
			added, err := r.orders.Add(ctx, text, person)
			ids = ids[:0]
			for _, a := range added {
				ids = append(ids, a.ID)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("add: %w", err)
		}
		l.mu.Lock()
		l.ids = append(l.ids, ids...)
		l.mu.Unlock()
		for i, id := range ids {
			if call[i]["workflow"] == "files" {
				err := l.persist(ctx, func() error { return r.attachments.Complete(ctx, id, "scan", person) })
				if _, refused := db.AsRefusal(err); err != nil && !refused {
					return fmt.Errorf("complete: %w", err)
				}
			}
		}
	}
	return nil
}

// meddle lets people decide things, until all is closed.
func (l *load) meddle(ctx context.Context, r *replica, times int) error {
	for range times {
		l.mu.Lock()
		ids := l.ids[max(0, len(l.ids)-40):]
		l.mu.Unlock()
		if len(ids) == 0 {
			if _, err := r.dispatch.Intake(ctx); err != nil && !l.faults {
				return err
			}
			continue
		}
		id := ids[rand.IntN(len(ids))]
		var err error
		switch rand.IntN(8) {
		case 0:
			err = r.orders.Cancel(ctx, id, person, "test")
		case 1, 2, 3:
			err = r.orders.Release(ctx, id, person, "test")
		case 4:
			err = r.orders.Suspend(ctx, id, rand.IntN(2) == 0, person, "test")
		case 5:
			err = r.orders.Move(ctx, id, []string{"first", "last"}[rand.IntN(2)], 0, person, "test")
		case 6:
			err = r.orders.Assign(ctx, id, []string{"", "Q1", "Q2"}[rand.IntN(3)], person, "test")
		case 7:
			err = r.orders.Resume(ctx, id, person, "test")
		}
		if _, refused := db.AsRefusal(err); err != nil && !refused && !l.again(ctx, err) {
			return fmt.Errorf("decision: %w", err)
		}
	}
	return nil
}

// watch looks, again and again, whether a rule is broken, frees what waits for a
// person once all is added, and ends when every order has ended.
func (l *load) watch(ctx context.Context, added <-chan struct{}) error {
	w := l.watcher
	defer close(l.done)
	// Not without a pause: looking takes more work than what is looked at.
	pause := time.NewTicker(25 * time.Millisecond)
	defer pause.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		all := false
		select {
		case <-added:
			all = true
		default:
		}
		found, err := invariant.Check(ctx, w.db)
		if err != nil {
			return err
		}
		if found = append(found, l.referee.Found()...); len(found) > 0 {
			return fmt.Errorf("look %d, broken:\n%s", looks, invariant.Describe(found))
		}
		if !all {
			continue
		}
		rows, err := w.db.Pool.Query(ctx, w.db.SQL(`SELECT id, state::text FROM siding.orders ORDER BY id`))
		if err != nil {
			return err
		}
		type live struct {
			ID    int64
			State string
		}
		left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[live])
		if err != nil {
			return err
		}
		if len(left) == 0 {
			l.t.Logf("%d looks", looks)
			return nil
		}
		for _, o := range left {
			switch o.State {
			case "suspended":
				err = w.orders.Resume(ctx, o.ID, person, "test")
			case "attention":
				err = w.orders.Resolve(ctx, o.ID, "resume", person, "test")
			case "dead":
				err = w.orders.Resolve(ctx, o.ID, "retry", person, "test")
			}
			if _, refused := db.AsRefusal(err); err != nil && !refused {
				return err
			}
		}
	}
}

// run does all of it and fails the test if something is broken or left.
func (l *load) run(calls int, besides ...func(ctx context.Context) error) {
	l.t.Helper()
	if err := l.try(calls, besides...); err != nil {
		l.t.Fatal(err)
	}
	sound(l.t, l.t.Context(), l.watcher)
	var orders, ended, unbooked int
	err := l.watcher.db.Pool.QueryRow(l.t.Context(), l.watcher.db.SQL(`
		SELECT (SELECT count(*) FROM siding.inputs), (SELECT count(*) FROM siding.outcomes),
		       (SELECT count(*) FROM (SELECT step_id, lease_no FROM siding.runs UNION ALL SELECT step_id, lease_no FROM siding.outcomes) x
		        JOIN siding.steps s ON s.step_id = x.step_id JOIN siding.resources r ON r.resource_id = s.line_id
		        WHERE r.name IN ('a1', 'c1') AND x.lease_no IS NOT NULL
		          AND NOT EXISTS (SELECT FROM siding.bookings b WHERE b.resource_id = s.line_id AND b.lease_no = x.lease_no))`)).
		Scan(&orders, &ended, &unbooked)
	if err != nil {
		l.t.Fatal(err)
	}
	if orders != len(l.ids) || ended != orders || unbooked > 0 {
		l.t.Errorf("%d orders were added, %d are known, %d have ended; %d claims weren't booked", len(l.ids), orders, ended, unbooked)
	}
}

// left tells what the orders that are left wait for.
func (l *load) left() string {
	var text string
	err := l.watcher.db.Pool.QueryRow(context.WithoutCancel(l.t.Context()), l.watcher.db.SQL(`
		SELECT coalesce(string_agg(concat_ws(' ', id, state, 'line', line_id, key, CASE WHEN candidate THEN 'candidate' END, CASE WHEN key_closed THEN 'held' END,
			CASE WHEN intake_closed THEN 'intake' END, CASE WHEN due_closed THEN 'due' END, CASE WHEN attachment_closed THEN 'blocked' END,
			CASE WHEN key_contested THEN 'contested' END, 'stop', stop), E'\n'), '')
		FROM (SELECT * FROM siding.orders ORDER BY id LIMIT 20) o`)).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

func (l *load) try(calls int, besides ...func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Minute)
	defer cancel()
	servers, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(ctx)
	for _, r := range l.replicas {
		servers.Go(func() error {
			if err := l.serve(serving, r); err != nil && serving.Err() == nil {
				return err
			}
			return nil
		})
	}
	group, gctx := errgroup.WithContext(ctx)
	added := make(chan struct{})
	var adders errgroup.Group
	for i := range 3 {
		adders.Go(func() error { return l.add(gctx, l.replicas[i%2], calls) })
		adders.Go(func() error { return l.meddle(gctx, l.replicas[(i+1)%2], calls*2) })
	}
	group.Go(func() error {
		defer close(added)
		return adders.Wait()
	})
	for _, r := range l.replicas {
		for _, agent := range []string{"a1", "a2"} {
			group.Go(func() error { return l.work(gctx, r, agent) })
		}
	}
	for _, f := range besides {
		group.Go(func() error { return f(gctx) })
	}
	group.Go(func() error { return l.watch(gctx, added) })
	err := group.Wait()
	if err != nil {
		err = fmt.Errorf("%w\nleft:\n%s", err, l.left())
	}
	stop()
	return errors.Join(err, servers.Wait())
}
