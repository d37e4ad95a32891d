package invariant_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/siding-dev/siding/internal/selector"
)

// The model is the state of all orders as docs/concepts.md describes it, kept
// in plain values. It shares nothing with the SQL but the rule of queues
// (selector.ModelResource, which has a test of its own). Gates are computed
// from the facts whenever they are asked for.

type modelStep struct {
	agent, class string
	max          int
	backoff      time.Duration
	attention    bool // on_lost
}

type modelWorkflow struct {
	name   string
	space  string // key space; "" without keys
	strict bool
	files  []string
	limit  time.Duration // wait limit
	steps  []modelStep
}

type modelLease struct {
	no, session int64
	claimedAt   time.Time
	acked       bool
}

type modelOrder struct {
	id, position int64
	workflow     *modelWorkflow
	step         int
	key, queue   string
	arrival      int // 0: not placed
	placed       bool
	state, stop  string
	reason       string // of attention
	started      bool
	released     bool
	attempt      int
	due          time.Time // zero: none
	files        map[string]string
	sums         map[string]bool // files with an expected hash
	limit        time.Duration
	deadline     time.Time
	lease        *modelLease
}

func (o *modelOrder) agent() string { return o.workflow.steps[o.step].agent }
func (o *modelOrder) class() string { return o.workflow.steps[o.step].class }
func (o *modelOrder) keyed() bool   { return o.key != "" }

type spaceKey struct{ space, key string }

func (o *modelOrder) spaceKey() spaceKey { return spaceKey{o.workflow.space, o.key} }

type modelAgent struct {
	limit      int
	rule       *selector.ModelResource
	maxBlocked *int
	tooMany    bool
	personMode string
	strict     bool
}

type modelSession struct {
	agent  string
	beat   time.Time
	silent bool
}

// past is a lease that has ended.
type past struct {
	order, lease, session int64
	outcome               string // as it ended
	final                 bool   // the order ended with it
}

// modelStore is what is known about the reads of the store of attachments.
type modelStore struct {
	failed     int
	first      time.Time
	unreadable bool
}

type subject struct{ kind, name string }

type model struct {
	now       time.Time
	alive     map[int64]*modelOrder // live
	ended     map[int64]string
	turn      map[spaceKey]int64 // the active order of each key
	arrivals  int
	agents    map[string]*modelAgent
	classes   map[string]int // limit
	queueIDs  map[string]int
	sessions  map[int64]*modelSession
	paused    map[subject]time.Time // zero: until resumed
	store     modelStore
	past      []past
	workflows map[string]*modelWorkflow
}

const (
	sessionTTL = 60 * time.Second
	ackWithin  = 10 * time.Second
)

func (m *model) live() []*modelOrder {
	ids := slices.Sorted(maps.Keys(m.alive))
	all := make([]*modelOrder, len(ids))
	for i, id := range ids {
		all[i] = m.alive[id]
	}
	return all
}

// Gates.

func (m *model) dueClosed(o *modelOrder) bool { return o.due.After(m.now) }

func (m *model) filesClosed(o *modelOrder) bool {
	for _, state := range o.files {
		if state != "complete" {
			return true
		}
	}
	return false
}

func (m *model) hasPredecessor(o *modelOrder) bool {
	for _, p := range m.alive {
		if p.keyed() && p.spaceKey() == o.spaceKey() && p.arrival > 0 && p.arrival < o.arrival {
			return true
		}
	}
	return false
}

func (m *model) keyClosed(o *modelOrder) bool {
	if !o.keyed() {
		return false
	}
	if o.arrival == 0 || !o.released && m.hasPredecessor(o) {
		return true
	}
	active, ok := m.turn[o.spaceKey()]
	return ok && active != o.id
}

func (m *model) workflowPaused(o *modelOrder) bool {
	_, paused := m.paused[subject{"workflow", o.workflow.name}]
	return paused
}

// candidate says whether the order could start but for the line and the queue.
func (m *model) candidate(o *modelOrder) bool {
	return o.state == "waiting" && o.placed && !m.dueClosed(o) && !m.filesClosed(o) && !m.keyClosed(o) && !m.workflowPaused(o)
}

// candidates are the orders that may be picked for an agent.
func (m *model) candidates(agent string) []selector.Candidate {
	if _, paused := m.paused[subject{"agent", agent}]; paused {
		return nil
	}
	var barrier *modelOrder
	if m.agents[agent].strict {
		for _, o := range m.alive {
			if o.agent() == agent && o.state == "waiting" && m.filesClosed(o) && !m.dueClosed(o) && (barrier == nil || inFront(o, barrier)) {
				barrier = o
			}
		}
	}
	var found []selector.Candidate
	for _, o := range m.live() {
		_, paused := m.paused[subject{"queue", o.queue}]
		if o.agent() != agent || paused || !m.candidate(o) || barrier != nil && !o.started && inFront(barrier, o) {
			continue
		}
		found = append(found, selector.Candidate{ID: o.id, Position: o.position, Queue: m.queueIDs[o.queue], Class: m.classID(o)})
	}
	return found
}

func inFront(a, b *modelOrder) bool {
	return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.id, b.id)) < 0
}

func (m *model) classID(o *modelOrder) int {
	if o.class() == "" {
		return 0
	}
	return 1 + slices.Index(slices.Sorted(maps.Keys(m.classes)), o.class())
}

// left is how many more orders may run on an agent, and of each class.
func (m *model) left(agent string) (int, map[int]int) {
	left, classes := m.agents[agent].limit, map[int]int{}
	for i, class := range slices.Sorted(maps.Keys(m.classes)) {
		classes[i+1] = m.classes[class]
	}
	for _, o := range m.alive {
		if o.state != "running" {
			continue
		}
		if o.agent() == agent {
			left--
		}
		if id := m.classID(o); id > 0 {
			classes[id] = max(classes[id]-1, 0)
		}
	}
	return max(left, 0), classes
}

// line is the order in which an agent's candidates would be picked, of each key
// all that may start.
func (m *model) line(agent string, n int) []int64 {
	_, classes := m.left(agent)
	ids := []int64{}
	for _, c := range m.agents[agent].rule.Clone().PickN(n, m.candidates(agent), classes) {
		ids = append(ids, c.ID)
	}
	return ids
}

// claim picks, one after the other, up to slots orders; each that is picked
// closes its key. Leases are given by the caller.
func (m *model) claim(agent string, slots int) []int64 {
	n, _ := m.left(agent)
	var ids []int64
	for range min(slots, n) {
		_, classes := m.left(agent)
		picks := m.agents[agent].rule.PickN(1, m.candidates(agent), classes)
		if len(picks) == 0 {
			break
		}
		o := m.alive[picks[0].ID]
		o.state, o.started = "running", true
		o.attempt++
		if o.keyed() {
			m.turn[o.spaceKey()] = o.id
		}
		ids = append(ids, o.id)
	}
	return ids
}

// Transitions.

// place gives all orders that wait for the intake their place.
func (m *model) place() {
	for _, o := range m.live() {
		if o.placed {
			continue
		}
		o.placed = true
		if o.keyed() {
			m.arrivals++
			o.arrival = m.arrivals
		}
	}
}

// settle gives the turn of a key, if nobody has it, to the first started order
// that waits.
func (m *model) settle(o *modelOrder) {
	if !o.keyed() {
		return
	}
	key := o.spaceKey()
	if _, taken := m.turn[key]; taken {
		return
	}
	var first *modelOrder
	for _, p := range m.alive {
		if p.keyed() && p.spaceKey() == key && p.started && p.state == "waiting" && (first == nil || inFront(p, first)) {
			first = p
		}
	}
	if first != nil {
		m.turn[key] = first.id
	}
}

func (m *model) giveTurnUp(o *modelOrder) {
	if o.keyed() && m.turn[o.spaceKey()] == o.id {
		delete(m.turn, o.spaceKey())
	}
	m.settle(o)
}

func (m *model) end(o *modelOrder, state string) {
	delete(m.alive, o.id)
	m.ended[o.id] = state
	m.giveTurnUp(o)
}

func (m *model) park(o *modelOrder, state, reason string) {
	o.state, o.reason, o.stop, o.lease = state, reason, "", nil
	m.giveTurnUp(o)
}

func (m *model) stand(o *modelOrder) {
	o.state, o.reason, o.stop, o.lease = "waiting", "", "", nil
	m.settle(o)
}

// advance lets an order go on behind its step.
func (m *model) advance(o *modelOrder) {
	if o.step == len(o.workflow.steps)-1 {
		m.end(o, "finished")
		return
	}
	o.step, o.attempt, o.due = o.step+1, 0, time.Time{}
	m.stand(o)
}

// endAttempt ends the running attempt.
func (m *model) endAttempt(o *modelOrder, outcome string) {
	p := past{order: o.id, lease: o.lease.no, session: o.lease.session, outcome: outcome}
	step, stop := o.workflow.steps[o.step], o.stop
	counts := outcome != "stopped" && outcome != "handed_back"
	if !counts {
		o.attempt--
	}
	switch {
	case stop == "cancel":
		m.end(o, "cancelled")
	case outcome == "succeeded":
		m.advance(o)
	case outcome == "stopped" && stop == "" && step.attention:
		m.park(o, "attention", "stopped")
	case !counts:
		m.stand(o)
	case outcome == "lost" && step.attention:
		m.park(o, "attention", "lost")
	case o.attempt >= step.max:
		m.park(o, "dead", "attempts_used_up")
	default:
		o.due = m.now.Add(min(step.backoff*time.Duration(o.attempt*o.attempt), time.Hour))
		m.stand(o)
	}
	if stop != "" && o.state == "waiting" && m.alive[o.id] != nil {
		m.park(o, "suspended", "suspended")
	}
	p.final = m.alive[o.id] == nil
	m.past = append(m.past, p)
}

// endSession ends what a session runs: lost, or, of one that was closed,
// stopped.
func (m *model) endSession(id int64, how string) {
	delete(m.sessions, id)
	for _, o := range m.live() {
		if o.lease == nil || o.lease.session != id {
			continue
		}
		outcome := how
		if how == "closed" {
			outcome = "stopped"
		}
		m.endAttempt(o, outcome)
	}
}

func (m *model) restartLimit(o *modelOrder) {
	if len(o.files) == 0 {
		return
	}
	o.deadline = time.Time{}
	if o.limit > 0 {
		o.deadline = later(m.now, o.due).Add(o.limit)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// updateMode turns an agent's line, as the facts say.
func (m *model) updateMode(name string) {
	a := m.agents[name]
	blocked, unknown := 0, false
	for _, o := range m.alive {
		if o.agent() != name || o.state != "waiting" || !m.filesClosed(o) {
			continue
		}
		if !m.dueClosed(o) {
			blocked++
		}
		// What failed its check is known.
		for _, state := range o.files {
			unknown = unknown || m.store.unreadable && (state == "pending" || state == "discarded")
		}
	}
	switch {
	case a.maxBlocked == nil:
		a.tooMany = false
	case a.tooMany:
		a.tooMany = blocked*10 > *a.maxBlocked*8
	default:
		a.tooMany = blocked > *a.maxBlocked
	}
	a.strict = a.personMode == "strict" || a.personMode == "" && (a.tooMany || unknown)
}

// readStore notes that the facts of attachments could be read, or not: three
// failures over 30 s make them unknown, one success known.
func (m *model) readStore(failed bool) {
	if !failed {
		m.store = modelStore{}
		return
	}
	if m.store.failed++; m.store.failed == 1 {
		m.store.first = m.now
	}
	if m.store.failed >= 3 && !m.store.first.Add(30*time.Second).After(m.now) {
		m.store.unreadable = true
	}
}

// sweep does what time and sweepers do.
func (m *model) sweep() {
	for _, o := range m.live() {
		if o.state == "waiting" && m.filesClosed(o) && !o.deadline.IsZero() && !o.deadline.After(m.now) && !m.dueClosed(o) {
			m.placeFor(o)
			m.park(o, "attention", "attachment_wait_limit")
		}
	}
	for name := range m.agents {
		m.updateMode(name)
	}
	for s, until := range m.paused {
		if !until.IsZero() && !until.After(m.now) {
			delete(m.paused, s)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if !m.sessions[id].beat.Add(sessionTTL).After(m.now) {
			m.endSession(id, "lost")
		}
	}
	for _, o := range m.live() {
		if o.lease != nil && !o.lease.acked && !o.lease.claimedAt.Add(ackWithin).After(m.now) {
			m.endAttempt(o, "handed_back")
		}
	}
}
