package invariant_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/db"
)

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
