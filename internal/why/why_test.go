package why_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/why"
	"github.com/siding-dev/siding/internal/why/whytest"
)

const definitions = `
{kind: queue, name: Q1, capacity: 1, penalty: 2}
---
{kind: queue, name: Q2, capacity: 2}
---
{kind: lock, name: L1, capacity: 3}
---
{kind: lock, name: L2, capacity: 3, queues: [Q2]}
---
{kind: agent, name: a1, processes: 1, queues: [Q1]}
---
{kind: agent, name: a2, processes: 2}
---
{kind: agent, name: a3, processes: 9, queues: [Q2]}
---
{kind: workflow, name: w, ordering: independent, wait_limit: 10m, defaults: {agent: a1}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: big, ordering: independent, defaults: {agent: a3}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: k, ordering: {key: order}, wait_limit: 10m, defaults: {agent: a3, max_attempts: 2}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: one, ordering: independent, defaults: {agent: a2}, steps: [{job: j, noop: true, processes: 1}]}
---
{kind: workflow, name: l1, ordering: independent, defaults: {agent: a3}, steps: [{lock: {L1: 1}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: l3, ordering: independent, defaults: {agent: a3}, steps: [{lock: {L1: 3}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: x1, ordering: independent, defaults: {agent: a3}, steps: [{lock: {L1: exclusive}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: m1, ordering: independent, defaults: {agent: a3}, steps: [{lock: {L2: 1}, steps: [{job: j, noop: true}]}]}
---
{kind: workflow, name: m3, ordering: independent, defaults: {agent: a3}, steps: [{lock: {L2: 3}, steps: [{job: j, noop: true}]}]}
`

// world has a session for each agent.
type world struct {
	*whytest.World
	t       *testing.T
	reasons *why.Reasons
}

func setup(t *testing.T) *world {
	t.Helper()
	w := whytest.New(t, definitions)
	w.Open("a1", 1)
	w.Open("a2", 2)
	w.Open("a3", 9)
	return &world{World: w, t: t, reasons: why.New(w.DB)}
}

func (w *world) of(ref string) why.Answer {
	w.t.Helper()
	answer, err := w.reasons.Of(w.t.Context(), w.ID(ref))
	if err != nil {
		w.t.Fatal(err)
	}
	return answer
}

// expect compares the codes of orders; next stands for an order that is next.
func (w *world) expect(want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	for ref := range want {
		answer := w.of(ref)
		got[ref] = ""
		for i, code := range answer.Codes() {
			if i > 0 {
				got[ref] += " "
			}
			got[ref] += code
		}
		if answer.Next {
			got[ref] += "next"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("obstacles (-want +got):\n%s", diff)
	}
}

// obstacle returns the obstacle of an order with a code.
func (w *world) obstacle(ref, code string) (why.Obstacle, map[string]any) {
	w.t.Helper()
	for _, o := range w.of(ref).Obstacles {
		if o.Code == code {
			numbers := map[string]any{}
			if err := json.Unmarshal(o.Numbers, &numbers); err != nil {
				w.t.Fatalf("numbers of %s: %v", code, err)
			}
			return o, numbers
		}
	}
	w.t.Fatalf("%s has no obstacle %s", ref, code)
	return why.Obstacle{}, nil
}

// expectObstacle compares the class, the subject and some of the numbers.
func (w *world) expectObstacle(ref, code string, class why.Class, subject string, numbers map[string]any) {
	w.t.Helper()
	o, got := w.obstacle(ref, code)
	if o.Class != class || o.Subject != subject {
		w.t.Errorf("%s of %s: got class %s, subject %q; want %s, %q", code, ref, o.Class, o.Subject, class, subject)
	}
	if o.EndsBy == "" {
		w.t.Errorf("%s of %s doesn't say what ends it", code, ref)
	}
	for name, want := range numbers {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			w.t.Errorf("%s of %s: %s (-want +got):\n%s", code, ref, name, diff)
		}
	}
}

func (w *world) id(ref string) float64 { return float64(w.ID(ref)) }

func (w *world) expectRefusal(order int64, code string) {
	w.t.Helper()
	_, err := w.reasons.Of(w.t.Context(), order)
	var r *db.Refusal
	if !errors.As(err, &r) || r.Code != code {
		w.t.Errorf("order %d: got %v, want refusal %s", order, err, code)
	}
}

func TestTurnAtAnAgent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "w", "ref": "J1"}`, `{"workflow": "w", "ref": "J2"}`, `{"workflow": "w", "ref": "J3"}`)
	w.expect(map[string]string{"J1": "next", "J2": "behind", "J3": "behind"})
	w.expectObstacle("J3", why.Behind, why.Later, "a1", map[string]any{"rank": 3.0, "first": w.id("J1")})

	w.Claim("a1", 1)
	w.expect(map[string]string{"J1": "", "J2": "process_limit", "J3": "process_limit"})
	if state := w.of("J1").State; state != "running" {
		t.Errorf("state of J1: %s", state)
	}
	w.expectObstacle("J2", why.ProcessLimit, why.Later, "a1", map[string]any{"processes": 1.0, "running": 1.0})
	w.Report("succeeded", "J1")

	// Q1 takes precedence; after its capacity it waits for its penalty.
	w.Add(`{"workflow": "w", "ref": "q1", "queue": "Q1"}`, `{"workflow": "w", "ref": "q2", "queue": "Q1"}`)
	w.expect(map[string]string{"q1": "next", "q2": "queue_overflow", "J2": "queue_turn"})
	w.expectObstacle("q2", why.QueueOverflow, why.Later, "Q1", map[string]any{"capacity": 1.0, "resource": "a1"})
	w.expectObstacle("J2", why.QueueTurn, why.Later, "Q1", map[string]any{"first": w.id("q1"), "penalty_left": 0.0})
	w.Claim("a1", 1)
	w.Report("succeeded", "q1")
	w.expect(map[string]string{"q2": "queue_turn", "J2": "next", "J3": "behind"})
	w.expectObstacle("q2", why.QueueTurn, why.Later, "-", map[string]any{"first": w.id("J2"), "penalty_left": 2.0})

	w.Lose("a1")
	w.expect(map[string]string{"J2": "no_agent", "J3": "no_agent", "q2": "queue_turn"})
	w.expectObstacle("J2", why.NoAgent, why.NeedsYou, "a1", nil)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Many("one", "o", 3)
	if diff := cmp.Diff([]string{"o1"}, w.Claim("a2", 2)); diff != "" {
		t.Fatalf("claimed (-want +got):\n%s", diff)
	}
	w.expect(map[string]string{"o2": "job_limit", "o3": "job_limit"})
	w.expectObstacle("o2", why.JobLimit, why.Later, "j", map[string]any{"processes": 1.0})

	// Every live session is full, though the agent's own limit isn't reached.
	w.Lose("a3")
	w.Open("a3", 1)
	w.Many("big", "b", 2)
	w.Claim("a3", 1)
	w.expect(map[string]string{"b2": "process_limit"})
	w.expectObstacle("b2", why.ProcessLimit, why.Later, "a3", map[string]any{"processes": 1.0})
	w.Apply(`{kind: agent, name: a1, processes: 0}`)
	w.Many("w", "z", 1)
	w.expectObstacle("z1", why.ProcessLimit, why.NeedsYou, "a1", map[string]any{"processes": 0.0})
}

// The limits of a cluster, its director and its members, as its running orders
// show them.
func TestLimitsOfAClusterAndItsDirector(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Apply(`
{kind: agent, name: d1, type: director, processes: 2}
---
{kind: agent, name: c1, type: cluster, processes: 2, director: d1, members: [{agent: a2, priority: 5}, {agent: a3, priority: 5}]}
---
{kind: agent, name: c2, type: cluster, processes: 9, director: d1, members: [{agent: a1, priority: 5}]}
---
{kind: workflow, name: c1, ordering: independent, defaults: {agent: c1}, steps: [{job: j, noop: true}]}
---
{kind: workflow, name: c2, ordering: independent, defaults: {agent: c2}, steps: [{job: j, noop: true}]}`)
	run := func(ref, agent string) {
		w.Exec(`UPDATE siding.orders o SET state = 'running', started_at = siding.clock(), leased_at = siding.clock(), lease_no = nextval('siding.lease_numbers'),
			agent_id = s.agent_id, session_id = s.session_id
			FROM siding.sessions s JOIN siding.resources r ON r.resource_id = s.agent_id WHERE o.id = $1 AND r.name = $2`, w.ID(ref), agent)
	}
	w.Many("c1", "x", 3)
	w.Many("c2", "y", 2)
	w.expect(map[string]string{"x1": "next", "x2": "behind", "y1": "next"})
	run("y1", "a1")
	w.expect(map[string]string{"x1": "next", "y2": "process_limit"})
	w.expectObstacle("y2", why.ProcessLimit, why.Later, "c2", map[string]any{"processes": 1.0}) // its only member is full
	run("x1", "a2")
	w.expectObstacle("x2", why.ProcessLimit, why.Later, "d1", map[string]any{"processes": 2.0, "running": 2.0})
	run("x2", "a3")
	w.expectObstacle("x3", why.ProcessLimit, why.Later, "c1", map[string]any{"processes": 2.0, "running": 2.0})
	w.Lose("a1")
	w.Apply(`{kind: agent, name: d1, type: director, processes: 9}`)
	w.expect(map[string]string{"y2": "no_agent"})
}

func TestTurnAtALock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "l1", "ref": "s1"}`, `{"workflow": "l3", "ref": "b1"}`, `{"workflow": "l1", "ref": "s2"}`, `{"workflow": "l3", "ref": "b2"}`)
	// s2 would fit, b2 wouldn't either.
	w.expect(map[string]string{"s1": "next", "b1": "lock_busy", "s2": "lock_turn", "b2": "lock_busy lock_turn"})
	w.expectObstacle("s2", why.LockTurn, why.Later, "L1", map[string]any{"first": w.id("b1"), "stored": true})
	w.expectObstacle("b1", why.LockBusy, why.Later, "L1", map[string]any{"capacity": 3.0, "weight": 3.0, "held": 1.0, "holders": 1.0, "exclusive": nil})
	_, numbers := w.obstacle("b1", why.LockBusy)
	holder := numbers["first_holders"].([]any)[0].(map[string]any)
	if holder["order"] != w.id("s1") || holder["weight"] != 1.0 {
		t.Errorf("holder of L1: %v", holder)
	}

	w.Apply(`{kind: lock, name: L1, capacity: 2}`)
	w.expect(map[string]string{"b1": "exceeds_capacity", "b2": "exceeds_capacity"})
	w.expectObstacle("b1", why.ExceedsCapacity, why.Never, "L1", map[string]any{"capacity": 2.0, "weight": 3.0})

	w.Add(`{"workflow": "x1", "ref": "x1"}`)
	w.expectObstacle("x1", why.LockBusy, why.Later, "L1", map[string]any{"exclusive": true, "weight": nil})
	w.Apply(`{kind: lock, name: L1, capacity: 0}`)
	w.expect(map[string]string{"x1": "exceeds_capacity"})
}

// At a lock that lists queues: the rule's turn first, then the stored pick.
func TestTurnAtALockWithQueues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "m1", "ref": "h"}`, `{"workflow": "m3", "ref": "p"}`)
	w.Add(`{"workflow": "m1", "ref": "n"}`)
	w.expect(map[string]string{"p": "lock_busy", "n": "lock_turn"})
	w.Many("m1", "g", 3, `"queue": "Q2"`)
	// p stays the pick; of the others Q2 goes first.
	w.expect(map[string]string{"p": "lock_busy", "n": "queue_turn", "g1": "lock_turn", "g2": "lock_turn", "g3": "queue_overflow"})
	w.expectObstacle("g1", why.LockTurn, why.Later, "L2", map[string]any{"first": w.id("p")})
}

func TestGates(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(
		`{"workflow": "k", "ref": "K1", "key": "C1", "attachments": [{"name": "f", "size": 7}]}`,
		`{"workflow": "k", "ref": "K2", "key": "C1", "due": "1m", "attachments": [{"name": "f"}, {"name": "g"}]}`,
		`{"workflow": "k", "ref": "K3", "key": "C1"}`)
	w.expect(map[string]string{"K1": "attachment_pending", "K2": "due attachment_pending key_held", "K3": "key_held"})
	if n := len(w.of("K2").Obstacles); n != 4 {
		t.Errorf("K2 has %d obstacles, want one per missing attachment: 4", n)
	}
	w.expectObstacle("K1", why.AttachmentPending, why.Later, "f", map[string]any{"state": "pending", "expected_size": 7.0})
	w.expectObstacle("K3", why.KeyHeld, why.Later, fmt.Sprint(w.ID("K2")), map[string]any{"key": "C1", "state": "waiting"})
	if o, _ := w.obstacle("K2", why.Due); o.Since == nil || o.Class != why.Later {
		t.Errorf("due of K2: %+v", o)
	}

	// A failed attempt closes the due gate as retry; the order stays active.
	w.Add(`{"workflow": "k", "ref": "R1", "key": "C2"}`, `{"workflow": "k", "ref": "R2", "key": "C2"}`)
	w.Claim("a3", 9)
	w.Decide(func(ctx context.Context) error {
		return w.Orders.Release(ctx, w.ID("R2"), whytest.Decider, "asked")
	})
	w.expect(map[string]string{"R2": "key_running"})
	w.expectObstacle("R2", why.KeyRunning, why.Later, fmt.Sprint(w.ID("R1")), map[string]any{"state": "running"})
	w.Report("failed", "R1")
	w.expect(map[string]string{"R1": "retry", "R2": "key_running"})
	w.expectObstacle("R1", why.Retry, why.Later, "j", map[string]any{"attempt": 1.0, "max_attempts": 2.0})
	if o, _ := w.obstacle("R1", why.Retry); o.Since == nil {
		t.Error("retry of R1 doesn't say since when")
	}
	w.Advance(3 * time.Second)
	w.Claim("a3", 1)
	w.Report("failed", "R1")
	w.expect(map[string]string{"R1": "dead", "R2": "next"})
	w.expectObstacle("R1", why.Dead, why.NeedsYou, "attempts_used_up", map[string]any{"attempts": 2.0})

	// Held behind what a person has to decide about.
	w.Decide(func(ctx context.Context) error { return w.Orders.Suspend(ctx, w.ID("K1"), false, whytest.Decider, "") })
	w.expect(map[string]string{"K1": "suspended", "K2": "due attachment_pending key_held"})
	w.expectObstacle("K2", why.KeyHeld, why.NeedsYou, fmt.Sprint(w.ID("K1")), map[string]any{"state": "suspended"})
	w.Decide(func(ctx context.Context) error { return w.Orders.Resume(ctx, w.ID("K1"), whytest.Decider, "") })
	w.Advance(10*time.Minute + time.Second)
	w.expect(map[string]string{"K1": "attention", "K2": "attachment_pending key_held"})
	w.expectObstacle("K1", why.Attention, why.NeedsYou, "attachment_wait_limit", map[string]any{"attachment": "f"})

	w.Decide(func(ctx context.Context) error { return w.Orders.Cancel(ctx, w.ID("K1"), whytest.Decider, "") })
	w.expectRefusal(w.ID("K1"), "order_final")
	w.expectRefusal(1<<40, "order_not_found")
}

// Two keys with one hash don't hold each other, and the predecessor is found
// behind the orders of the other key.
func TestEqualHashes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "k", "ref": "A1", "key": "A"}`, `{"workflow": "k", "ref": "B1", "key": "B"}`, `{"workflow": "k", "ref": "B2", "key": "B"}`,
		`{"workflow": "k", "ref": "A2", "key": "A"}`, `{"workflow": "k", "ref": "C1", "key": "C"}`)
	w.Exec(`UPDATE siding.orders SET key_hash = 7`)
	w.expectObstacle("A2", why.KeyHeld, why.Later, fmt.Sprint(w.ID("A1")), nil)
	w.expectObstacle("B2", why.KeyHeld, why.Later, fmt.Sprint(w.ID("B1")), nil)
	w.Exec(`UPDATE siding.orders SET key_closed = true WHERE id = $1`, w.ID("C1")) // as if another of its key were active
	if o, _ := w.obstacle("C1", why.KeyRunning); o.Subject != "" {
		t.Errorf("C1 waits for %q of another key", o.Subject)
	}
}

func TestIntake(t *testing.T) {
	t.Parallel()
	w := setup(t)
	ids := whytest.Value[int64](w.World, `SELECT order_id FROM siding.add_orders('[{"workflow": "k", "key": "C1", "ref": "N"}]', 'ann', false)`)
	answer, err := w.reasons.Of(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{why.Intake}, answer.Codes()); diff != "" {
		t.Errorf("before the intake (-want +got):\n%s", diff)
	}
}

func TestUnreadableAndStrict(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "w", "ref": "J1", "attachments": [{"name": "f"}]}`, `{"workflow": "w", "ref": "J2"}`, `{"workflow": "w", "ref": "J3", "due": "1m"}`)
	w.Exec(`UPDATE siding.stores SET unreadable = true, problem = 'no answer'`)
	w.Tick()
	w.expect(map[string]string{"J1": "attachment_unknown", "J2": "line_strict", "J3": "due"})
	w.expectObstacle("J1", why.AttachmentUnknown, why.Unknown, "f", map[string]any{"problem": "no answer"})
	w.expectObstacle("J2", why.LineStrict, why.Later, "a1", map[string]any{"barrier": w.id("J1"), "reason": "fact_unreadable"})
	w.Exec(`UPDATE siding.stores SET unreadable = false, problem = NULL`)
	w.Exec(`UPDATE siding.attachments SET state = 'unknown'`)
	w.Tick()
	w.expect(map[string]string{"J1": "attachment_unknown", "J2": "line_strict"})
	w.Exec(`UPDATE siding.attachments SET state = 'pending'`)
	w.Tick()
	w.expect(map[string]string{"J1": "attachment_pending", "J2": "next"})

	// What has started goes on behind the barrier.
	w.Claim("a1", 1)
	w.Decide(func(ctx context.Context) error {
		return w.Orders.SetLineMode(ctx, "a1", "strict", whytest.Decider, "care")
	})
	w.Report("failed", "J2")
	w.Advance(time.Minute)
	w.expect(map[string]string{"J2": "next", "J3": "line_strict"})
	w.expectObstacle("J3", why.LineStrict, why.Later, "a1", map[string]any{"reason": "set_by_person", "person": "ann", "person_reason": "care"})
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, name, order, attached string
	}{
		{"queue", "Q1", `{"workflow": "w", "ref": "J", "queue": "Q1"}`, `{"workflow": "w", "ref": "A", "queue": "Q1", "attachments": [{"name": "f"}]}`},
		{"agent", "a1", `{"workflow": "w", "ref": "J"}`, `{"workflow": "w", "ref": "A", "attachments": [{"name": "f"}]}`},
		{"workflow", "w", `{"workflow": "w", "ref": "J"}`, `{"workflow": "w", "ref": "A", "attachments": [{"name": "f"}]}`},
		{"lock", "L1", `{"workflow": "l1", "ref": "J"}`, `{"workflow": "l1", "ref": "A", "attachments": [{"name": "f"}]}`},
	} {
		t.Run(test.kind, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.Decide(func(ctx context.Context) error {
				return w.Orders.Pause(ctx, test.kind, test.name, time.Time{}, whytest.Decider, "repair")
			})
			w.Add(test.order, test.attached)
			subject := test.kind + "/" + test.name
			w.expect(map[string]string{"J": "paused", "A": "attachment_pending paused"})
			w.expectObstacle("J", why.Paused, why.NeedsYou, subject, map[string]any{"reason": "repair", "person": "ann"})
			now := whytest.Value[time.Time](w.World, `SELECT siding.clock()`)
			w.Decide(func(ctx context.Context) error {
				return w.Orders.Pause(ctx, test.kind, test.name, now.Add(time.Minute), whytest.Decider, "repair")
			})
			w.expectObstacle("J", why.Paused, why.Later, subject, nil)
			w.Decide(func(ctx context.Context) error {
				return w.Orders.Unpause(ctx, test.kind, test.name, whytest.Decider, "")
			})
			w.expect(map[string]string{"J": "next", "A": "attachment_pending"})
		})
	}
}
