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
	m.endSession(id, "closed")
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
