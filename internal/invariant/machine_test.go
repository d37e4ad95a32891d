package invariant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/invariant/soak"
	"github.com/siding-dev/siding/internal/selector"
)

// machine does the same to the product and to the model, step by step, and
// compares the two after each.
type machine struct {
	*replica
	*model
	ctx    context.Context
	agents map[string]int32 // ids
	// what definitions say at the moment
	queueDefs map[string]selector.ModelQueue
	lists     map[string][]string
	steps     int
}

const machineWorkflows = `
kind: workflow
name: free
ordering: independent
defaults: {agent: a1, max_attempts: 2, backoff: {first: 2s, max: 1h}}
steps: [{job: one, noop: true}]
---
kind: workflow
name: two
ordering: {key: order}
key_space: shared
defaults: {max_attempts: 2, backoff: {first: 2s, max: 1h}}
steps: [{job: first, noop: true, agent: a1}, {job: second, noop: true, agent: a2, processes: %d}]
---
kind: workflow
name: files
ordering: {key: order}
key_space: shared
wait_limit: 1h
attachments: [{name: scan}]
defaults: {agent: a2, max_attempts: 3, on_lost: attention, backoff: {first: 2s, max: 1h}}
steps: [{job: read, noop: true}]
---
kind: workflow
name: strict
ordering: strict
defaults: {agent: a1, max_attempts: 1, backoff: {first: 2s, max: 1h}}
steps: [{job: one, noop: true}, {job: two, noop: true}]
`

func modelWorkflows() map[string]*modelWorkflow {
	all := []*modelWorkflow{
		{name: "free", steps: []modelStep{{agent: "a1", max: 2, backoff: 2 * time.Second}}},
		{name: "two", space: "shared", steps: []modelStep{
			{agent: "a1", max: 2, backoff: 2 * time.Second}, {agent: "a2", class: "second", max: 2, backoff: 2 * time.Second},
		}},
		{name: "files", space: "shared", files: []string{"scan"}, limit: time.Hour, steps: []modelStep{
			{agent: "a2", max: 3, backoff: 2 * time.Second, attention: true},
		}},
		{name: "strict", space: "strict", strict: true, steps: []modelStep{
			{agent: "a1", max: 1, backoff: 2 * time.Second}, {agent: "a1", max: 1, backoff: 2 * time.Second},
		}},
	}
	byName := map[string]*modelWorkflow{}
	for _, w := range all {
		byName[w.name] = w
	}
	return byName
}

// newMachine empties the database and begins with drawn definitions.
func newMachine(t *rapid.T, ctx context.Context, r *replica) *machine {
	r.exec(t, ctx, `TRUNCATE siding.orders, siding.bookings, siding.claims, siding.sessions, siding.attentions, siding.attachments, siding.uploads,
		siding.pauses, siding.order_references, siding.inputs, siding.outcomes, siding.runs, siding.step_outputs`)
	r.exec(t, ctx, `UPDATE siding.lines SET mode = 'pass', reason = NULL, person_mode = NULL, too_many = false`)
	r.exec(t, ctx, `UPDATE siding.stores SET failed_reads = 0, first_failure_at = NULL, unreadable = false, problem = NULL`)
	m := &machine{
		replica: r, ctx: ctx, agents: map[string]int32{}, queueDefs: map[string]selector.ModelQueue{}, lists: map[string][]string{},
		model: &model{
			alive: map[int64]*modelOrder{}, ended: map[int64]string{}, turn: map[spaceKey]int64{},
			agents:  map[string]*modelAgent{"a1": {rule: &selector.ModelResource{}}, "a2": {rule: &selector.ModelResource{}}},
			classes: map[string]int{"second": 1}, queueIDs: map[string]int{"": 0}, sessions: map[int64]*modelSession{},
			paused: map[subject]time.Time{}, workflows: modelWorkflows(),
		},
	}
	m.now = value[time.Time](t, ctx, r, `SELECT siding.clock()`)
	m.define(t)
	for name := range m.model.agents {
		m.agents[name] = value[int32](t, ctx, r, `SELECT resource_id FROM siding.resources WHERE kind = 'agent' AND name = $1`, name)
	}
	m.open(t)
	return m
}

// Actions. Each does one thing to both.

// define draws new definitions.
func (m *machine) define(t *rapid.T) {
	var text strings.Builder
	names := []string{"Q1", "Q2", "Q3"}
	for _, name := range names {
		q := selector.ModelQueue{Penalty: rapid.IntRange(0, 3).Draw(t, "penalty")}
		fmt.Fprintf(&text, "kind: queue\nname: %s\npenalty: %d\n", name, q.Penalty)
		if rapid.IntRange(0, 3).Draw(t, "bounded") > 0 {
			n := rapid.IntRange(1, 3).Draw(t, "capacity")
			q.Capacity = &n
			fmt.Fprintf(&text, "capacity: %d\n", n)
		}
		text.WriteString("---\n")
		m.queueDefs[name] = q
	}
	for _, name := range []string{"a1", "a2"} {
		a := m.model.agents[name]
		m.lists[name] = rapid.SliceOfNDistinct(rapid.SampledFrom(names[:2]), 0, 2, rapid.ID[string]).Draw(t, "listed")
		a.limit, a.maxBlocked = rapid.IntRange(0, 5).Draw(t, "processes"), nil
		fmt.Fprintf(&text, "kind: agent\nname: %s\ntype: standalone\nprocesses: %d\nqueues: [%s]\n", name, a.limit, strings.Join(m.lists[name], ", "))
		if rapid.Bool().Draw(t, "max blocked stated") {
			n := rapid.IntRange(0, 3).Draw(t, "max blocked")
			a.maxBlocked = &n
			fmt.Fprintf(&text, "max_blocked: %d\n", n)
		}
		text.WriteString("---\n")
	}
	m.classes["second"] = rapid.IntRange(1, 2).Draw(t, "job limit")
	fmt.Fprintf(&text, machineWorkflows, m.classes["second"])
	m.apply(t, m.ctx, text.String())

	for name := range m.queueDefs {
		id := value[int](t, m.ctx, m.replica, `SELECT queue_id FROM siding.queues WHERE name = $1`, name)
		q := m.queueDefs[name]
		q.ID = id
		m.queueDefs[name], m.queueIDs[name] = q, id
	}
	for name, a := range m.model.agents {
		a.rule.Queues = nil
		for _, q := range m.lists[name] {
			a.rule.Queues = append(a.rule.Queues, m.queueDefs[q])
		}
		a.rule.Normalize()
	}
}

func (m *machine) open(t *rapid.T) {
	agent := rapid.SampledFrom([]string{"a1", "a1", "a2"}).Draw(t, "agent")
	req := protocol.OpenRequest{Agent: agent, Processes: 9}
	if rapid.Bool().Draw(t, "restart") {
		for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
			if m.sessions[id].agent == agent {
				req.Previous = protocol.SessionID(id)
				m.endSession(id, "lost")
				break
			}
		}
	}
	s, err := m.dispatch.OpenSession(m.ctx, req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	m.sessions[int64(s.ID)] = &modelSession{agent: agent, beat: m.now}
}

func (m *machine) session(t *rapid.T) int64 {
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.sessions))).Draw(t, "session")
}

func (m *machine) closeSession(t *rapid.T) {
	id := m.session(t)
	if err := m.dispatch.CloseSession(m.ctx, protocol.SessionID(id)); err != nil {
		t.Fatalf("%v", err)
	}
	m.endSession(id, "stopped")
}

func (m *machine) silence(t *rapid.T) { m.sessions[m.session(t)].silent = true }

type newOrder struct {
	Workflow    string           `json:"workflow"`
	Key         string           `json:"key,omitempty"`
	Queue       string           `json:"queue,omitempty"`
	Due         string           `json:"due,omitempty"`
	WaitLimit   string           `json:"wait_limit,omitempty"`
	Attachments []map[string]any `json:"attachments,omitempty"`
}

// goodSum is the SHA-256 of "good".
const goodSum = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"

func (m *machine) add(t *rapid.T) {
	var call []newOrder
	var made []*modelOrder
	for range rapid.IntRange(1, 4).Draw(t, "orders") {
		n := newOrder{Workflow: rapid.SampledFrom([]string{"free", "two", "two", "files", "strict"}).Draw(t, "workflow")}
		o := &modelOrder{workflow: m.workflows[n.Workflow], state: "waiting", files: map[string]string{}, sums: map[string]bool{}}
		switch {
		case o.workflow.strict:
			o.key = "*"
		case o.workflow.space != "":
			n.Key = rapid.SampledFrom([]string{"k1", "k2"}).Draw(t, "key")
			o.key = n.Key
		}
		n.Queue = rapid.SampledFrom([]string{"", "", "Q1", "Q2", "Q3"}).Draw(t, "queue")
		o.queue, o.limit = n.Queue, o.workflow.limit
		if rapid.IntRange(0, 4).Draw(t, "due") == 0 {
			n.Due = "30s"
			o.due = m.now.Add(30 * time.Second)
		}
		for _, f := range o.workflow.files {
			o.files[f] = "pending"
		}
		if rapid.IntRange(0, 2).Draw(t, "own files") == 0 {
			n.Attachments = []map[string]any{{"name": "f", "sha256": goodSum}}
			o.files, o.sums = map[string]string{"f": "pending"}, map[string]bool{"f": true}
			n.WaitLimit, o.limit = "20s", 20*time.Second
		}
		if m.filesClosed(o) && o.limit > 0 {
			o.deadline = later(m.now, o.due).Add(o.limit)
		}
		call, made = append(call, n), append(made, o)
	}
	text, err := json.Marshal(call)
	if err != nil {
		t.Fatalf("%v", err)
	}
	added, err := m.replica.orders.Add(m.ctx, text, person)
	if err != nil {
		t.Fatalf("add: %v", err)
	}
	for i, a := range added {
		o := made[i]
		o.id, o.position = a.ID, a.ID<<20
		// Whether a stream was there is nothing that the model knows.
		o.placed = !o.keyed() && !value[bool](t, m.ctx, m.replica, `SELECT intake_closed FROM siding.orders WHERE id = $1`, a.ID)
		m.alive[o.id] = o
	}
	if rapid.IntRange(0, 4).Draw(t, "placed at once") > 0 {
		m.intake(t)
	}
}

func (m *machine) intake(t *rapid.T) {
	if _, err := m.dispatch.Intake(m.ctx); err != nil {
		t.Fatalf("%v", err)
	}
	m.place()
}

func (m *machine) claimSome(t *rapid.T) {
	id := m.session(t)
	agent, slots := m.sessions[id].agent, rapid.IntRange(1, 4).Draw(t, "slots")
	want := m.claim(agent, slots)
	leases, err := m.dispatch.ClaimNow(m.ctx, protocol.ClaimRequest{Session: protocol.SessionID(id), RequestID: uuid.NewString(), Slots: slots})
	if err != nil {
		t.Fatalf("%v", err)
	}
	var got []int64
	for _, l := range leases {
		got = append(got, l.Order)
		if o := m.alive[l.Order]; o != nil {
			o.lease = &modelLease{no: l.Lease, session: id, claimedAt: m.now}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("claimed (-model +database):\n%s", diff)
	}
}

var outcomes = []protocol.Outcome{
	protocol.Succeeded, protocol.Succeeded, protocol.Succeeded, protocol.Succeeded, protocol.Failed, protocol.TimedOut, protocol.Rejected,
	protocol.Stopped, protocol.HandedBack,
}

// report reports some of what runs, and perhaps what is long over.
func (m *machine) report(t *rapid.T) {
	id := m.session(t)
	var reports []protocol.Report
	want := map[int64]bool{}
	for _, o := range m.live() {
		if o.lease == nil || o.lease.session != id || rapid.IntRange(0, 2).Draw(t, "goes on") == 0 {
			continue
		}
		outcome := rapid.SampledFrom(outcomes).Draw(t, "outcome")
		reports = append(reports, protocol.Report{LeaseRef: protocol.LeaseRef{Order: o.id, Lease: o.lease.no}, Outcome: outcome})
		want[o.lease.no] = true
	}
	// The model ends them in the order in which the database does.
	for _, r := range reports {
		m.endAttempt(m.alive[r.Order], string(r.Outcome))
	}
	m.send(t, id, reports, want)
}

// repeat reports a lease that has ended already.
func (m *machine) repeat(t *rapid.T) {
	if len(m.past) == 0 {
		t.Skip("nothing has ended")
	}
	p := rapid.SampledFrom(m.past).Draw(t, "past lease")
	outcome := rapid.SampledFrom(outcomes).Draw(t, "outcome")
	accepted := p.final && m.ended[p.order] == "finished" || p.outcome == string(outcome)
	if p.final && m.ended[p.order] == "cancelled" {
		accepted = true // it is over, however
	}
	m.send(t, p.session, []protocol.Report{{LeaseRef: protocol.LeaseRef{Order: p.order, Lease: p.lease}, Outcome: outcome}}, map[int64]bool{p.lease: accepted})
}

func (m *machine) send(t *rapid.T, session int64, reports []protocol.Report, want map[int64]bool) {
	results, err := m.dispatch.ReportNow(m.ctx, protocol.SessionID(session), reports)
	if err != nil {
		t.Fatalf("report: %v", err)
	}
	for i, r := range results {
		if r.Accepted != want[r.Lease] {
			t.Fatalf("report %s of order %d, lease %d: accepted %t (%s)", reports[i].Outcome, r.Order, r.Lease, r.Accepted, r.Code)
		}
	}
}

// pass lets time go by: sessions that aren't silent send heartbeats, then
// sweepers work.
func (m *machine) pass(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Second, 11 * time.Second, 35 * time.Second, 65 * time.Second, time.Hour}).Draw(t, "time")
	m.now = m.now.Add(by)
	m.exec(t, m.ctx, `SELECT siding.set_clock($1)`, m.now)
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id]
		if s.silent {
			continue
		}
		s.beat = m.now
		req := protocol.HeartbeatRequest{Session: protocol.SessionID(id)}
		var want []protocol.StopRequest
		for _, o := range m.live() {
			if o.lease == nil || o.lease.session != id {
				continue
			}
			o.lease.acked = true
			ref := protocol.LeaseRef{Order: o.id, Lease: o.lease.no}
			req.Leases = append(req.Leases, ref)
			switch o.stop {
			case "cancel":
				want = append(want, protocol.StopRequest{LeaseRef: ref, Reason: "cancel"})
			case "kill":
				want = append(want, protocol.StopRequest{LeaseRef: ref, Reason: "suspend"})
			}
		}
		reply, err := m.dispatch.Heartbeat(m.ctx, req)
		if err != nil {
			t.Fatalf("%v", err)
		}
		slices.SortFunc(reply.Stop, func(a, b protocol.StopRequest) int { return int(a.Order - b.Order) })
		if diff := cmp.Diff(want, reply.Stop); diff != "" || len(reply.Gone) > 0 {
			t.Fatalf("heartbeat: gone %v, stop (-model +database):\n%s", reply.Gone, diff)
		}
	}
	m.sweepBoth(t)
}

func (m *machine) sweepBoth(t *rapid.T) {
	if err := m.keeper.Sweep(m.ctx); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	m.sweep()
}

// anyOrder draws an order, now and then one that has ended.
func (m *machine) anyOrder(t *rapid.T) int64 {
	var ids []int64
	if len(m.ended) > 0 && rapid.IntRange(0, 9).Draw(t, "ended") == 0 {
		ids = slices.Sorted(maps.Keys(m.ended))
	} else {
		ids = slices.Sorted(maps.Keys(m.alive))
	}
	if len(ids) == 0 {
		t.Skip("no order")
	}
	return rapid.SampledFrom(ids).Draw(t, "order")
}

// code compares what was refused.
func (m *machine) code(t *rapid.T, what string, want string, err error) {
	t.Helper()
	got := ""
	if refusal, refused := db.AsRefusal(err); refused {
		got = refusal.Code
	} else if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got != want {
		t.Fatalf("%s: refused %q, the model says %q (%v)", what, got, want, err)
	}
}

// decision draws an order and something to decide about it; the model says
// whether it is refused, and does it.
func (m *machine) decision(t *rapid.T) {
	id := m.anyOrder(t)
	what := rapid.SampledFrom([]string{
		"cancel", "suspend", "kill", "resume", "resume", "release", "release", "retry", "skip", "resolve", "resolve", "drop", "assign", "move",
	}).Draw(t, "decision")
	var err error
	target, other, place := "", int64(0), ""
	orders := m.replica.orders
	switch what {
	case "cancel":
		err = orders.Cancel(m.ctx, id, person, "test")
	case "suspend", "kill":
		err = orders.Suspend(m.ctx, id, what == "kill", person, "test")
	case "resume":
		err = orders.Resume(m.ctx, id, person, "test")
	case "release":
		err = orders.Release(m.ctx, id, person, "test")
	case "retry", "skip":
		err = orders.Resolve(m.ctx, id, what, person, "test")
	case "resolve":
		err = orders.Resolve(m.ctx, id, "resume", person, "test")
	case "drop":
		err = orders.Resolve(m.ctx, id, "cancel", person, "test")
	case "assign":
		target = rapid.SampledFrom([]string{"", "Q1", "Q2", "Q3"}).Draw(t, "to queue")
		err = orders.Assign(m.ctx, id, target, person, "test")
	case "move":
		place = rapid.SampledFrom([]string{"first", "last", "before", "after"}).Draw(t, "to")
		if place == "before" || place == "after" {
			other = m.anyOrder(t)
		}
		err = orders.Move(m.ctx, id, place, other, person, "test")
	}
	o := m.alive[id]
	if o == nil {
		m.code(t, what, "order_final", err)
		return
	}
	undo := m.placeFor(o)
	if err != nil {
		defer undo()
	}
	switch what {
	case "assign":
		m.assigned(t, o, target, err)
	case "move":
		m.moved(t, o, place, other, err)
	default:
		m.code(t, what, m.decide(o, what), err)
	}
}

// placeFor: deciding about an order that has no place yet gives it one, and all
// others that wait for theirs; unless it is refused, for then nothing stays.
func (m *model) placeFor(o *modelOrder) (undo func()) {
	var placed []*modelOrder
	if !o.placed {
		for _, p := range m.alive {
			if !p.placed {
				placed = append(placed, p)
			}
		}
		m.place()
	}
	return func() {
		for _, p := range placed {
			p.placed, p.arrival = false, 0
		}
	}
}

// decide does it, or says why it is refused.
func (m *model) decide(o *modelOrder, what string) (refused string) {
	switch what {
	case "cancel":
		if o.state == "running" {
			o.stop = "cancel"
			return ""
		}
		m.end(o, "cancelled")
	case "suspend", "kill":
		switch {
		case o.state == "suspended":
		case o.state == "running" && o.stop == "cancel":
			return "order_running"
		case o.state == "running":
			o.stop = what
		case o.state == "waiting":
			m.park(o, "suspended", "suspended")
		default:
			return "not_suspendable"
		}
	case "resume":
		if o.state == "running" && o.stop == "suspend" {
			o.stop = ""
			return ""
		}
		if o.state != "suspended" {
			return "not_suspended"
		}
		m.restartLimit(o)
		m.stand(o)
	case "release":
		switch {
		case o.state == "running":
			return "order_running"
		case !o.keyed() || o.released || !m.hasPredecessor(o):
			return "nothing_to_release"
		}
		o.released = true
		m.settle(o)
	case "retry":
		if o.state != "dead" {
			return "not_dead"
		}
		o.attempt, o.due = 0, time.Time{}
		m.restartLimit(o)
		m.stand(o)
	case "skip":
		switch {
		case o.state != "dead" && o.state != "attention":
			return "not_dead"
		case o.state == "attention" && strings.HasPrefix(o.reason, "attachment"):
			return "nothing_to_skip"
		}
		o.state = "waiting"
		m.advance(o)
	case "resolve":
		if o.state != "attention" {
			return "not_in_attention"
		}
		// An order that never started is still due when it was.
		if o.started {
			o.due = time.Time{}
		}
		m.restartLimit(o)
		m.stand(o)
	case "drop":
		if o.state != "attention" && o.state != "dead" {
			return "not_in_attention"
		}
		m.end(o, "cancelled")
	}
	return ""
}

func (m *machine) positionOf(t *rapid.T, id int64) int64 {
	return value[int64](t, m.ctx, m.replica, `SELECT position FROM siding.orders WHERE id = $1`, id)
}

// assigned: another queue is a place at the end, none the original one.
func (m *machine) assigned(t *rapid.T, o *modelOrder, queue string, err error) {
	switch {
	case o.queue == queue:
		m.code(t, "assign", "", err)
		return
	case o.state == "running":
		m.code(t, "assign", "order_running", err)
		return
	}
	m.code(t, "assign", "", err)
	o.queue, o.position = queue, o.id<<20
	if queue != "" {
		last := o.position
		for _, p := range m.alive {
			last = max(last, p.position)
		}
		if o.position = m.positionOf(t, o.id); o.position <= last {
			t.Fatalf("assigned order %d stands at %d, not behind %d", o.id, o.position, last)
		}
	}
}

// moved: the order stands where it was told; nobody else changes places.
func (m *machine) moved(t *rapid.T, o *modelOrder, place string, otherID int64, err error) {
	other := m.alive[otherID]
	switch {
	case o.state == "running":
		m.code(t, "move", "order_running", err)
		return
	case o.state != "waiting":
		m.code(t, "move", "not_waiting", err)
		return
	case otherID != 0 && other == nil:
		m.code(t, "move", "order_final", err)
		return
	case other != nil && other.queue != o.queue:
		m.code(t, "move", "different_queue", err)
		return
	}
	m.code(t, "move", "", err)
	if other == o {
		return
	}
	old := slices.SortedFunc(maps.Values(m.alive), func(a, b *modelOrder) int {
		if inFront(a, b) {
			return -1
		}
		return 1
	})
	rest := func(all []*modelOrder) (ids []int64) {
		for _, p := range all {
			if p != o {
				ids = append(ids, p.id)
			}
		}
		return ids
	}
	before := rest(old)
	for _, p := range m.alive {
		p.position = m.positionOf(t, p.id)
	}
	slices.SortFunc(old, func(a, b *modelOrder) int {
		if inFront(a, b) {
			return -1
		}
		return 1
	})
	if diff := cmp.Diff(before, rest(old)); diff != "" {
		t.Fatalf("a move of %d changed the places of others:\n%s", o.id, diff)
	}
	for _, p := range m.alive {
		if p == o || p.queue != o.queue || p.state != "waiting" {
			continue
		}
		wrong := place == "first" && inFront(p, o) || place == "last" && inFront(o, p) ||
			place == "before" && (inFront(other, o) || inFront(o, p) && inFront(p, other)) ||
			place == "after" && (inFront(o, other) || inFront(p, o) && inFront(other, p))
		if wrong {
			t.Fatalf("order %d (%d) was moved %s %d; order %d stands at %d", o.id, o.position, place, otherID, p.id, p.position)
		}
	}
}

// file does something with an attachment.
func (m *machine) file(t *rapid.T) {
	id := m.anyOrder(t)
	what := rapid.SampledFrom([]string{"complete", "complete", "good", "good", "bad", "discard", "expect"}).Draw(t, "what")
	name := rapid.SampledFrom([]string{"scan", "f", "f"}).Draw(t, "file")
	var err error
	switch what {
	case "complete":
		err = m.attachments.Complete(m.ctx, id, name, person)
	case "good", "bad":
		_, err = m.attachments.Put(m.ctx, id, name, strings.NewReader(what), int64(len(what)))
	case "discard":
		err = m.attachments.Discard(m.ctx, id, name, person, "test")
	case "expect":
		m.exec(t, m.ctx, `SELECT 1`)
		err = m.expect(id, "g")
	}
	o := m.alive[id]
	if o == nil {
		m.code(t, what, "order_final", err)
		return
	}
	m.code(t, what, m.handle(o, what, name), err)
}

func (m *machine) expect(id int64, name string) error {
	_, err := m.db.Pool.Exec(m.ctx, m.db.SQL(`SELECT siding.expect_attachment($1, jsonb_build_object('name', $2::text), 'test', 'test')`), id, name)
	return err
}

func (m *model) handle(o *modelOrder, what, name string) (refused string) {
	wasClosed := m.filesClosed(o)
	state, expected := o.files[name]
	close := func() {
		if !wasClosed {
			o.deadline = time.Time{}
			if o.limit > 0 {
				o.deadline = later(m.now, o.due).Add(o.limit)
			}
		}
	}
	if what == "expect" {
		undo := m.placeFor(o)
		defer func() {
			if refused != "" {
				undo()
			}
		}()
		switch {
		case o.state == "running":
			return "order_running"
		case o.started:
			return "order_started"
		case o.files["g"] != "":
			return "attachment_exists"
		}
		o.files["g"] = "pending"
		close()
		return ""
	}
	if !expected {
		// What is refused places nobody, since all of it is undone.
		return "attachment_not_found"
	}
	switch what {
	case "complete":
		switch {
		case state == "complete":
			m.placeFor(o)
			return ""
		case o.sums[name]:
			return "attachment_needs_bytes"
		}
		m.placeFor(o)
		o.files[name] = "complete"
	case "good", "bad":
		if state == "complete" {
			return "attachment_complete"
		}
		m.placeFor(o)
		if what == "good" || !o.sums[name] {
			o.files[name] = "complete"
			return ""
		}
		o.files[name] = "failed"
		switch {
		case o.state == "waiting" || o.state == "suspended":
			m.park(o, "attention", "attachment_check_failed")
		case o.state == "attention" && strings.HasPrefix(o.reason, "attachment"):
			o.reason = "attachment_check_failed"
		}
	case "discard":
		if o.state == "running" {
			return "order_running"
		}
		m.placeFor(o)
		if state == "pending" || state == "discarded" {
			return ""
		}
		o.files[name] = "discarded"
		close()
	}
	return ""
}

func (m *machine) pause(t *rapid.T) {
	s := rapid.SampledFrom([]subject{{"queue", "Q1"}, {"queue", "Q3"}, {"agent", "a1"}, {"workflow", "two"}, {"workflow", "free"}}).Draw(t, "pause")
	if _, paused := m.paused[s]; paused {
		if err := m.replica.orders.Unpause(m.ctx, s.kind, s.name, person, "test"); err != nil {
			t.Fatalf("%v", err)
		}
		delete(m.paused, s)
	} else {
		var until time.Time
		if rapid.Bool().Draw(t, "until") {
			until = m.now.Add(30 * time.Second)
		}
		if err := m.replica.orders.Pause(m.ctx, s.kind, s.name, until, person, "test"); err != nil {
			t.Fatalf("%v", err)
		}
		m.paused[s] = until
	}
	m.sweepBoth(t)
}

func (m *machine) mode(t *rapid.T) {
	name, mode := rapid.SampledFrom([]string{"a1", "a2"}).Draw(t, "line"), rapid.SampledFrom([]string{"strict", "pass", "auto", "auto"}).Draw(t, "mode")
	if err := m.replica.orders.SetLineMode(m.ctx, name, mode, person, "test"); err != nil {
		t.Fatalf("%v", err)
	}
	m.model.agents[name].personMode = strings.TrimPrefix(mode, "auto")
	m.updateMode(name)
}

// read reads the store of attachments, perhaps in vain.
func (m *machine) read(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "reads") {
		problem := rapid.SampledFrom([]string{"cannot be read", "cannot be read", ""}).Draw(t, "problem")
		if err := m.attachments.StoreReadable(m.ctx, "postgres", problem); err != nil {
			t.Fatalf("%v", err)
		}
		m.readStore(problem != "")
	}
	m.sweepBoth(t)
}

// orderState is what is compared of an order.
type orderState struct {
	ID                                            int64
	State, Stop, Reason, Queue                    string
	Position                                      int64
	Step, Attempt                                 int
	Started, Released                             bool
	Lease                                         int64
	Intake, Due, Files, Key, Candidate, Contested bool
}

func (m *machine) compare(t *rapid.T) {
	m.steps++
	rows, err := m.db.Pool.Query(m.ctx, m.db.SQL(`
		SELECT o.id, o.state::text, coalesce(o.stop::text, ''), coalesce(a.reason, ''), coalesce(q.name, ''), o.position,
		       split_part(s.step_path, '.', 1)::int - 1, o.attempt, o.started_at IS NOT NULL, o.released, coalesce(o.lease_no, 0),
		       o.state = 'waiting' AND o.intake_closed, o.state = 'waiting' AND o.due_closed, o.state = 'waiting' AND o.attachment_closed,
		       o.state = 'waiting' AND o.key_closed,
		       o.candidate AND NOT EXISTS (
		           SELECT FROM siding.pauses p JOIN siding.workflow_versions v ON v.workflow_id = p.subject_id
		           WHERE p.kind = 'workflow' AND v.version_id = s.version_id), false
		FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
		LEFT JOIN siding.queues q ON q.queue_id = o.queue_id
		LEFT JOIN siding.attentions a ON a.order_id = o.id AND o.state = 'attention'
		ORDER BY o.id`))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := []orderState{}
	for rows.Next() {
		var s orderState
		if err := rows.Scan(&s.ID, &s.State, &s.Stop, &s.Reason, &s.Queue, &s.Position, &s.Step, &s.Attempt, &s.Started, &s.Released, &s.Lease,
			&s.Intake, &s.Due, &s.Files, &s.Key, &s.Candidate, &s.Contested); err != nil {
			t.Fatalf("%v", err)
		}
		got = append(got, s)
	}
	if rows.Err() != nil {
		t.Fatalf("%v", rows.Err())
	}
	want := []orderState{}
	for _, o := range m.live() {
		s := orderState{
			ID: o.id, State: o.state, Stop: o.stop, Queue: o.queue, Position: o.position, Step: o.step, Attempt: o.attempt,
			Started: o.started, Released: o.released,
		}
		if o.state == "attention" {
			s.Reason = o.reason
		}
		if o.lease != nil {
			s.Lease = o.lease.no
		}
		if o.state == "waiting" {
			s.Intake, s.Due, s.Files, s.Key, s.Candidate = !o.placed, m.dueClosed(o), m.filesClosed(o), m.keyClosed(o), m.candidate(o)
		}
		want = append(want, s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("orders (-model +database):\n%s", diff)
	}
	for _, name := range []string{"a1", "a2"} {
		line := value[[]int64](t, m.ctx, m.replica, `SELECT ids FROM siding.pick($1, 100)`, m.agents[name])
		if diff := cmp.Diff(m.line(name, 100), line); diff != "" {
			t.Fatalf("line of %s (-model +database):\n%s", name, diff)
		}
	}
	if m.steps%10 == 0 {
		m.sound(t)
	}
}

func (m *machine) sound(t *rapid.T) {
	sound(t, m.ctx, m.replica)
	rows, err := m.db.Pool.Query(m.ctx, m.db.SQL(`SELECT order_id, state::text FROM siding.outcomes`))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got := map[int64]string{}
	for rows.Next() {
		var id int64
		var state string
		if err := rows.Scan(&id, &state); err != nil {
			t.Fatalf("%v", err)
		}
		got[id] = state
	}
	if diff := cmp.Diff(m.ended, got); diff != "" {
		t.Fatalf("outcomes (-model +database):\n%s", diff)
	}
}

// TestStateMachineEqualsModel: with one claimer, whatever happens to orders, in
// whatever order, the database is in the state that the model says.
func TestStateMachineEqualsModel(t *testing.T) {
	t.Parallel()
	r := newReplica(dbtest.New(t, dbtest.WithScenarioClock()), anyGap)
	soak.Check(t, 10, func(rt *rapid.T) {
		m := newMachine(rt, t.Context(), r)
		actions := map[string]func(*rapid.T){
			"":         m.compare,
			"add":      m.add,
			"add too":  m.add,
			"intake":   m.intake,
			"claim":    m.claimSome,
			"claim 2":  m.claimSome,
			"claim 3":  m.claimSome,
			"report":   m.report,
			"report 2": m.report,
			"repeat":   m.repeat,
			"open":     m.open,
			"close":    m.closeSession,
			"silence":  m.silence,
			"time":     m.pass,
			"decide":   m.decision,
			"decide 2": m.decision,
			"decide 3": m.decision,
			"file":     m.file,
			"file 2":   m.file,
			"pause":    m.pause,
			"mode":     m.mode,
			"define":   m.define,
			"read":     m.read,
		}
		rt.Repeat(actions)
		rt.Repeat(actions)
		m.sound(rt)
	})
}
