package selector

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Queues 1 to 4 may be listed, 5 never is; few distinct positions make ties.
var (
	queueIDs   = []int{1, 2, 3, 4}
	assignable = []int{0, 1, 2, 3, 4, 5}
)

func drawQueues(t *rapid.T) []ModelQueue {
	listed := rapid.SliceOfNDistinct(rapid.SampledFrom(queueIDs), 0, len(queueIDs), rapid.ID[int]).Draw(t, "listed queues")
	queues := make([]ModelQueue, 0, len(listed))
	for _, id := range listed {
		q := ModelQueue{ID: id, Penalty: rapid.IntRange(0, 5).Draw(t, "penalty")}
		if rapid.IntRange(0, 3).Draw(t, "bounded") > 0 {
			n := rapid.IntRange(1, 4).Draw(t, "capacity")
			q.Capacity = &n
		}
		queues = append(queues, q)
	}
	return queues
}

func drawCandidates(t *rapid.T, firstID int64, atMost int) []Candidate {
	n := rapid.IntRange(0, atMost).Draw(t, "orders added")
	cands := make([]Candidate, 0, n)
	for i := range int64(n) {
		cands = append(cands, Candidate{
			ID:       firstID + i,
			Position: rapid.Int64Range(1, 12).Draw(t, "position"),
			Queue:    rapid.SampledFrom(assignable).Draw(t, "queue"),
			Class:    rapid.IntRange(0, 2).Draw(t, "class"),
		})
	}
	return cands
}

func drawClassLeft(t *rapid.T) map[int]int {
	return rapid.MapOfN(rapid.IntRange(1, 2), rapid.IntRange(0, 6), 0, 2).Draw(t, "places left by class")
}

// machine is one resource over time: orders come and go, definitions change,
// picks are made and booked one at a time.
type machine struct {
	r         *ModelResource
	cands     []Candidate
	classLeft map[int]int
	nextID    int64
}

func (m *machine) bookOne(t *rapid.T) {
	before := m.r.Clone()
	available := WithinLimits(m.cands, m.classLeft)
	picked, ok := m.r.Pick(m.cands, m.classLeft)
	if ok != (len(available) > 0) {
		t.Fatalf("Pick says %t with %d candidates", ok, len(available))
	}
	if diff := cmp.Diff(before, m.r); diff != "" {
		t.Fatalf("Pick changed the resource (-before +after):\n%s", diff)
	}
	if !ok {
		return
	}
	if err := LegalPick(before, available, picked); err != nil {
		t.Fatalf("illegal pick: %v", err)
	}
	for _, c := range available {
		if c != picked && LegalPick(before, available, c) == nil {
			t.Fatalf("order %d is judged legal, and so is order %d", c.ID, picked.ID)
		}
	}
	m.r.Book(picked)
	m.cands = without(m.cands, picked)
	m.checkBooking(t, before, picked)
}

// checkBooking holds the numbers before and after one booking against the
// text of the rule.
func (m *machine) checkBooking(t *rapid.T, before *ModelResource, picked Candidate) {
	before.Normalize()
	for _, q := range m.r.Queues {
		was, is := before.Numbers[q.ID], m.r.Numbers[q.ID]
		switch {
		case !q.Counted():
			if is != (Numbers{}) {
				t.Fatalf("queue %d isn't counted and has %+v", q.ID, is)
			}
		case q.ID != picked.Queue:
			if is.Served != was.Served || is.PenaltyLeft != max(was.PenaltyLeft-1, 0) {
				t.Fatalf("another's booking turned queue %d from %+v to %+v", q.ID, was, is)
			}
		default:
			served := was.Served + 1
			if was.PenaltyLeft > 0 {
				served = 1 // waived
			}
			want := Numbers{Served: served}
			if served >= *q.Capacity {
				want = Numbers{PenaltyLeft: q.Penalty}
			}
			if is != want {
				t.Fatalf("its own booking turned queue %d from %+v to %+v, want %+v", q.ID, was, is, want)
			}
			if is.Served > *q.Capacity-1 {
				t.Fatalf("queue %d has served %d of %d and isn't penalised", q.ID, is.Served, *q.Capacity)
			}
		}
	}
}

// check is what holds at every moment.
func (m *machine) check(t *rapid.T) {
	for id, n := range m.r.Numbers {
		q, listed := m.r.queue(id)
		if !listed || !q.Counted() {
			t.Fatalf("queue %d keeps %+v, and isn't counted here", id, n)
		}
		if n.PenaltyLeft < 0 || n.PenaltyLeft > q.Penalty || n.Served < 0 {
			t.Fatalf("queue %d of penalty %d has %+v", id, q.Penalty, n)
		}
		if n.Served > 0 && n.PenaltyLeft > 0 {
			t.Fatalf("queue %d is penalised and counts: %+v", id, n)
		}
	}
}

func TestModelProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{r: &ModelResource{Queues: drawQueues(t)}, classLeft: drawClassLeft(t), nextID: 1}
		t.Repeat(map[string]func(*rapid.T){
			"":     m.check,
			"pick": m.bookOne,
			"add": func(t *rapid.T) {
				added := drawCandidates(t, m.nextID, 8)
				m.nextID += int64(len(added))
				m.cands = append(m.cands, added...)
			},
			"leave": func(t *rapid.T) {
				if len(m.cands) == 0 {
					t.Skip("nobody is there")
				}
				m.cands = without(m.cands, rapid.SampledFrom(m.cands).Draw(t, "gone"))
			},
			"limits": func(t *rapid.T) { m.classLeft = drawClassLeft(t) },
			"apply": func(t *rapid.T) {
				old := m.r.Clone()
				m.r.Queues = drawQueues(t)
				asIs := m.r.Clone()
				m.r.Normalize()
				want, wantOK := m.r.Pick(m.cands, m.classLeft)
				if got, ok := asIs.Pick(m.cands, m.classLeft); got != want || ok != wantOK {
					t.Fatalf("before Normalize %+v is picked, afterwards %+v", got, want)
				}
				for id, n := range m.r.Numbers {
					if was := old.Numbers[id]; n.Served != was.Served || n.PenaltyLeft > was.PenaltyLeft {
						t.Fatalf("applying turned queue %d from %+v to %+v", id, was, n)
					}
				}
			},
		})
	})
}

// Served stays below the capacity at all times while no capacity is lowered.
func TestModelServedStaysBelowCapacity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &ModelResource{Queues: drawQueues(t)}
		cands := drawCandidates(t, 1, 40)
		for range len(cands) {
			cands = without(cands, r.PickN(1, cands, nil)...)
			for _, q := range r.Queues {
				if n := r.Numbers[q.ID]; q.Counted() && n.Served > *q.Capacity-1 {
					t.Fatalf("queue %d of capacity %d has %+v", q.ID, *q.Capacity, n)
				}
			}
		}
		if len(cands) > 0 {
			t.Fatalf("%d orders are left after as many picks as there were orders", len(cands))
		}
	})
}

func TestModelBatchEqualsSinglePicks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		batched := &ModelResource{Queues: drawQueues(t)}
		single := batched.Clone()
		cands, classLeft := drawCandidates(t, 1, 40), drawClassLeft(t)
		n := rapid.IntRange(0, 45).Draw(t, "batch")

		batch := batched.PickN(n, cands, classLeft)
		left, places := slices.Clone(cands), maps.Clone(classLeft)
		var one []Candidate
		for range n {
			picks := single.PickN(1, left, places)
			if len(picks) == 0 {
				break
			}
			if _, limited := places[picks[0].Class]; limited {
				places[picks[0].Class]--
			}
			left = without(left, picks...)
			one = append(one, picks...)
		}
		if diff := cmp.Diff(one, batch); diff != "" {
			t.Fatalf("picks (-one by one +batch):\n%s", diff)
		}
		if diff := cmp.Diff(nonZero(single.Numbers), nonZero(batched.Numbers)); diff != "" {
			t.Fatalf("numbers (-one by one +batch):\n%s", diff)
		}

		if unused := WithinLimits(left, places); len(batch) < n && len(unused) > 0 {
			t.Fatalf("%d of %d picks were made, idle with %d candidates", len(batch), n, len(unused))
		}
		for class, places := range places {
			if places < 0 {
				t.Fatalf("class %d was given %d places too many", class, -places)
			}
		}
	})
}

// Whatever the queues do to each other, the orders of one queue and class are
// picked by position, then ID, and never twice.
func TestModelOrderWithinQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &ModelResource{Queues: drawQueues(t)}
		cands, classLeft := drawCandidates(t, 1, 40), drawClassLeft(t)
		picks := r.PickN(rapid.IntRange(0, 45).Draw(t, "batch"), cands, classLeft)

		type line struct{ queue, class int }
		last := map[line]Candidate{}
		for _, c := range picks {
			of := line{c.Queue, c.Class}
			if before, seen := last[of]; seen && compareCandidates(before, c) >= 0 {
				t.Fatalf("%+v was picked before %+v", before, c)
			}
			last[of] = c
			if !slices.Contains(cands, c) {
				t.Fatalf("%+v was picked and never added", c)
			}
		}
	})
}

func TestModelInQueueAndOverflowAreASplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &ModelResource{Queues: drawQueues(t)}
		cands := drawCandidates(t, 1, 40)
		total := 0
		for _, id := range assignable {
			in, over := r.InQueue(cands, id), r.Overflow(cands, id)
			total += len(in) + len(over)
			all := append(slices.Clone(in), over...)
			if !slices.IsSortedFunc(all, compareCandidates) {
				t.Fatalf("queue %d isn't in order: in %v, overflow %v", id, in, over)
			}
			q, listed := r.queue(id)
			switch bounded := listed && q.Capacity != nil; {
			case bounded && len(in) > *q.Capacity:
				t.Fatalf("queue %d of capacity %d holds %d", id, *q.Capacity, len(in))
			case bounded && len(over) > 0 && len(in) < *q.Capacity, !bounded && len(over) > 0:
				t.Fatalf("queue %d has room and an overflow of %d", id, len(over))
			}
		}
		if total != len(cands) {
			t.Fatalf("%d of %d orders stand somewhere", total, len(cands))
		}
	})
}
