// Package selector decides which order gets the next unit of a resource
// (docs/concepts.md, Who goes next). The picks that count are made by its
// routines (sql/); [ModelResource] is the same rule in pure Go, which tests
// hold them against.
package selector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// ModelQueue is one queue as a resource lists it. ID is never 0.
//
// Capacity nil means unbounded. Only a queue with both a capacity and a
// penalty above 0 keeps numbers; see [ModelQueue.Counted].
type ModelQueue struct {
	ID       int
	Capacity *int // orders in the queue at once, and picks until the penalty starts
	Penalty  int  // picks of other queues and others that the queue sits out
}

// Counted reports whether the queue keeps numbers at a resource at all.
func (q ModelQueue) Counted() bool { return q.Capacity != nil && q.Penalty > 0 }

// Numbers are the two counters of one queue at one resource. The zero value
// is that of a queue that was never picked there.
type Numbers struct {
	Served      int // picks booked since the last penalty ended or was waived
	PenaltyLeft int // bookings of the others until the queue is served again
}

// ModelResource is the rule of precedence, capacity and penalty in plain Go:
// one lock, agent or cluster, with the queues it lists and their numbers. It
// knows no database, and is what the SQL of this package is tested against.
//
// Queues and Numbers may be set directly. A changed definition is applied by
// replacing Queues and calling [ModelResource.Normalize]; Pick and Book also
// work with the new definition if that call is left out. The methods aren't
// safe for concurrent use.
type ModelResource struct {
	Queues  []ModelQueue    // in precedence order
	Numbers map[int]Numbers // by queue ID; a missing entry is the zero value
}

// Candidate is an order that could get the next unit: all its gates are open
// (at a lock: all but the lock's), it could ever fit, and nobody has its row
// locked.
type Candidate struct {
	ID       int64
	Position int64
	Queue    int // 0: assigned to none
	Class    int // the job's own process limit that the order falls under; 0: none
}

// compareCandidates orders by position, then ID, so that the order is total.
func compareCandidates(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.ID, b.ID))
}

// WithinLimits returns those that are candidates under the jobs' own limits:
// an order whose class has no place left is none. A class that classLeft
// doesn't list is unlimited. The argument is left as it is.
func WithinLimits(cands []Candidate, classLeft map[int]int) []Candidate {
	within := make([]Candidate, 0, len(cands))
	for _, c := range cands {
		if left, limited := classLeft[c.Class]; c.Class == 0 || !limited || left > 0 {
			within = append(within, c)
		}
	}
	return within
}

// Clone returns a copy that shares nothing with r.
func (r *ModelResource) Clone() *ModelResource {
	return &ModelResource{Queues: slices.Clone(r.Queues), Numbers: maps.Clone(r.Numbers)}
}

// queue returns the listed queue with that ID. Nothing is listed under 0.
func (r *ModelResource) queue(id int) (ModelQueue, bool) {
	at := slices.IndexFunc(r.Queues, func(q ModelQueue) bool { return q.ID == id })
	if id == 0 || at < 0 {
		return ModelQueue{}, false
	}
	return r.Queues[at], true
}

// numbers returns the numbers of q as its present definition lets them count:
// none for a queue that isn't counted, and no more penalty than it now states.
// Served is left alone, also above the capacity: it is compared when q is
// booked next.
func (r *ModelResource) numbers(q ModelQueue) Numbers {
	if !q.Counted() {
		return Numbers{}
	}
	n := r.Numbers[q.ID]
	n.PenaltyLeft = min(n.PenaltyLeft, q.Penalty)
	return n
}

// Normalize applies the present definitions to the stored numbers:
// PenaltyLeft is cut to a lowered penalty, and queues that are no longer
// counted or no longer listed lose their numbers. A queue that has served more
// than a lowered capacity isn't penalised here but when it is booked next.
func (r *ModelResource) Normalize() {
	kept := make(map[int]Numbers, len(r.Queues))
	for _, q := range r.Queues {
		if n := r.numbers(q); n != (Numbers{}) {
			kept[q.ID] = n
		}
	}
	r.Numbers = kept
}

// Pick returns the order that gets the next unit; ok is false only if there
// is no candidate. It changes nothing: a pick that is never booked leaves no
// trace. See [WithinLimits] for classLeft.
func (r *ModelResource) Pick(cands []Candidate, classLeft map[int]int) (picked Candidate, ok bool) {
	first := map[int]Candidate{} // by listed queue; 0: the others
	for _, c := range WithinLimits(cands, classLeft) {
		line := c.Queue
		if _, listed := r.queue(line); !listed {
			line = 0
		}
		if best, found := first[line]; !found || compareCandidates(c, best) < 0 {
			first[line] = c
		}
	}

	var waived *Candidate
	for _, q := range r.Queues {
		c, found := first[q.ID]
		switch {
		case !found:
		case r.numbers(q).PenaltyLeft == 0:
			return c, true
		case waived == nil:
			waived = &c
		}
	}
	if c, found := first[0]; found {
		return c, true
	}
	if waived != nil {
		return *waived, true
	}
	return Candidate{}, false
}

// Book counts a pick. If its queue is penalised, the pick was made because
// nothing else was there, and the penalty is waived first: both numbers are 0
// before the pick counts.
func (r *ModelResource) Book(c Candidate) {
	r.Normalize()
	for id, n := range r.Numbers {
		if id != c.Queue && n.PenaltyLeft > 0 {
			n.PenaltyLeft--
			r.Numbers[id] = n
		}
	}
	q, listed := r.queue(c.Queue)
	if !listed || !q.Counted() {
		return
	}
	n := r.Numbers[q.ID]
	if n.PenaltyLeft > 0 {
		n = Numbers{}
	}
	n.Served++
	if n.Served >= *q.Capacity {
		n = Numbers{PenaltyLeft: q.Penalty}
	}
	r.Numbers[q.ID] = n
}

// PickN picks and books n times in sequence, fewer if the candidates run out,
// and returns the picks in order. Each pick takes one place of its class. The
// arguments are left as they are.
func (r *ModelResource) PickN(n int, cands []Candidate, classLeft map[int]int) []Candidate {
	cands, classLeft = slices.Clone(cands), maps.Clone(classLeft)
	var picks []Candidate
	for range n {
		c, ok := r.Pick(cands, classLeft)
		if !ok {
			break
		}
		r.Book(c)
		picks = append(picks, c)
		cands = slices.DeleteFunc(cands, func(other Candidate) bool { return other.ID == c.ID })
		if _, limited := classLeft[c.Class]; limited && c.Class != 0 {
			classLeft[c.Class]--
		}
	}
	return picks
}

// InQueue returns the candidates that are in the queue: its capacity
// lowest-position ones, all of them if it states none or the resource doesn't
// list it. Queue 0 stands for the orders that are assigned to none.
func (r *ModelResource) InQueue(cands []Candidate, queue int) []Candidate {
	in, _ := r.split(cands, queue)
	return in
}

// Overflow returns the candidates of the queue that stand behind those of
// [ModelResource.InQueue], in the order in which they would enter. It is what
// people see; Pick doesn't care.
func (r *ModelResource) Overflow(cands []Candidate, queue int) []Candidate {
	_, over := r.split(cands, queue)
	return over
}

func (r *ModelResource) split(cands []Candidate, queue int) (in, over []Candidate) {
	for _, c := range cands {
		if c.Queue == queue {
			in = append(in, c)
		}
	}
	slices.SortFunc(in, compareCandidates)
	if q, listed := r.queue(queue); listed && q.Capacity != nil && len(in) > *q.Capacity {
		return in[:*q.Capacity:*q.Capacity], in[*q.Capacity:]
	}
	return in, nil
}

// LegalPick says why the picked order was not the one to pick, or nil. The
// numbers of before are those that held when it was picked; candidates are all
// that existed at that moment, the picked one included, filtered by
// [WithinLimits].
//
// It judges by pairs (who was passed over, and by what right) and doesn't call
// Pick, so that the two check each other.
func LegalPick(before *ModelResource, candidates []Candidate, picked Candidate) error {
	if !slices.Contains(candidates, picked) {
		return fmt.Errorf("order %d was no candidate", picked.ID)
	}
	for _, c := range candidates {
		if c == picked {
			continue
		}
		if err := before.mayPass(picked, c); err != nil {
			return fmt.Errorf("order %d was picked before order %d: %w", picked.ID, c.ID, err)
		}
	}
	return nil
}

// mayPass says why picked must not go before passed, or nil if it may.
func (r *ModelResource) mayPass(picked, passed Candidate) error {
	pickedRank, passedRank := r.rank(picked.Queue), r.rank(passed.Queue)
	switch {
	case pickedRank.less(passedRank):
		return nil
	case pickedRank == passedRank: // one queue, or both of the others
		if compareCandidates(picked, passed) < 0 {
			return nil
		}
		return fmt.Errorf("both wait in %s, and the latter has the lower place", pickedRank)
	case pickedRank.tier == tierWaived && passedRank.tier != tierWaived:
		return fmt.Errorf("%s is penalised, and the latter waits in %s", pickedRank, passedRank)
	default:
		return fmt.Errorf("the latter waits in %s, which precedes %s", passedRank, pickedRank)
	}
}

// The rule's three parts, in the order in which they are tried.
const (
	tierFree   = iota + 1 // a listed queue without penalty left
	tierOthers            // no queue, or one that isn't listed
	tierWaived            // a listed queue with penalty left
)

// rank is the standing of a line of orders at one moment: the part of the rule
// that serves it, and its precedence within that part.
type rank struct {
	tier, precedence int
	queue            int // for messages; 0: the others
}

func (r *ModelResource) rank(queue int) rank {
	at := slices.IndexFunc(r.Queues, func(q ModelQueue) bool { return q.ID == queue })
	switch {
	case queue == 0 || at < 0:
		return rank{tier: tierOthers}
	case r.numbers(r.Queues[at]).PenaltyLeft > 0:
		return rank{tier: tierWaived, precedence: at, queue: queue}
	default:
		return rank{tier: tierFree, precedence: at, queue: queue}
	}
}

func (a rank) less(b rank) bool {
	return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.precedence, b.precedence)) < 0
}

func (a rank) String() string {
	if a.tier == tierOthers {
		return "the line of the others"
	}
	return fmt.Sprintf("queue %d", a.queue)
}
