package selector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func capacity(n int) *int { return &n }

// waiting makes n candidates of a queue with rising IDs and positions that
// start at first.
func waiting(queue int, first int64, n int) []Candidate {
	cands := make([]Candidate, 0, n)
	for i := range int64(n) {
		cands = append(cands, Candidate{ID: first + i, Position: first + i, Queue: queue})
	}
	return cands
}

func join(groups ...[]Candidate) []Candidate {
	var all []Candidate
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// runs writes picks the way the worked example does: "Q1 x5, N x2".
func runs(picks []Candidate) string {
	var parts []string
	for at := 0; at < len(picks); {
		end := at
		for end < len(picks) && picks[end].Queue == picks[at].Queue {
			end++
		}
		name := "N"
		if q := picks[at].Queue; q != 0 {
			name = fmt.Sprintf("Q%d", q)
		}
		parts = append(parts, fmt.Sprintf("%s x%d", name, end-at))
		at = end
	}
	return strings.Join(parts, ", ")
}

func ids(cands []Candidate) []int64 {
	list := []int64{}
	for _, c := range cands {
		list = append(list, c.ID)
	}
	return list
}

func TestModelWorkedExample(t *testing.T) {
	t.Parallel()
	const want = "Q1 x5, Q2 x2, Q1 x5, Q2 x1, N x6, Q2 x3, N x4, Q2 x4"
	queues := []ModelQueue{{ID: 1, Capacity: capacity(5), Penalty: 2}, {ID: 2, Capacity: capacity(3), Penalty: 6}}
	q1, q2, none := waiting(1, 1, 10), waiting(2, 11, 10), waiting(0, 21, 10)

	// Between queues, the order in which the orders were added has no say.
	orders := map[string][]Candidate{
		"added Q1 Q2 N": join(q1, q2, none),
		"added N Q2 Q1": join(waiting(0, 1, 10), waiting(2, 11, 10), waiting(1, 21, 10)),
		"read backward": join(none, q2, q1),
	}
	for name, cands := range orders {
		for _, batch := range []int{1, 3, 30} {
			t.Run(fmt.Sprintf("%s, batches of %d", name, batch), func(t *testing.T) {
				t.Parallel()
				r := &ModelResource{Queues: queues}
				var picks []Candidate
				left := cands
				for len(left) > 0 {
					got := r.PickN(batch, left, nil)
					picks = append(picks, got...)
					left = without(left, got...)
				}
				if got := runs(picks); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				wantNumbers := map[int]Numbers{1: {}, 2: {Served: 1}}
				if diff := cmp.Diff(wantNumbers[2], r.Numbers[2]); diff != "" {
					t.Errorf("numbers of Q2 afterwards (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantNumbers[1], r.Numbers[1]); diff != "" {
					t.Errorf("numbers of Q1 afterwards (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func without(cands []Candidate, gone ...Candidate) []Candidate {
	drop := map[int64]struct{}{}
	for _, c := range gone {
		drop[c.ID] = struct{}{}
	}
	var left []Candidate
	for _, c := range cands {
		if _, ok := drop[c.ID]; !ok {
			left = append(left, c)
		}
	}
	return left
}

func TestModelPicks(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		queues      []ModelQueue
		before      map[int]Numbers
		cands       []Candidate
		classLeft   map[int]int
		picks       int
		want        []int64
		wantNumbers map[int]Numbers // those that aren't 0/0
	}{
		"nothing to pick": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(1), Penalty: 1}},
			before:      map[int]Numbers{1: {PenaltyLeft: 1}},
			picks:       2,
			want:        []int64{},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 1}},
		},
		"a queue goes before a lower position without one": {
			queues: []ModelQueue{{ID: 1}},
			cands:  []Candidate{{ID: 1, Position: 1}, {ID: 2, Position: 2, Queue: 1}},
			picks:  2,
			want:   []int64{2, 1},
		},
		"precedence is the order of the list": {
			queues: []ModelQueue{{ID: 7}, {ID: 3}},
			cands:  []Candidate{{ID: 1, Position: 1, Queue: 3}, {ID: 2, Position: 2, Queue: 7}},
			picks:  2,
			want:   []int64{2, 1},
		},
		"equal positions go by id, in a queue and among the others": {
			queues: []ModelQueue{{ID: 1}},
			cands: []Candidate{
				{ID: 9, Position: 5}, {ID: 8, Position: 5, Queue: 1}, {ID: 4, Position: 5}, {ID: 6, Position: 5, Queue: 1}, {ID: 99, Position: 4},
			},
			picks: 5,
			want:  []int64{6, 8, 99, 4, 9},
		},
		"a queue that isn't listed is an other": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(1), Penalty: 3}},
			before:      map[int]Numbers{1: {PenaltyLeft: 2}},
			cands:       []Candidate{{ID: 1, Position: 2}, {ID: 2, Position: 1, Queue: 5}, {ID: 3, Position: 3, Queue: 6}},
			picks:       3,
			want:        []int64{2, 1, 3},
			wantNumbers: map[int]Numbers{},
		},
		"an other lowers every penalised queue": {
			queues: []ModelQueue{
				{ID: 1, Capacity: capacity(2), Penalty: 4}, {ID: 2, Capacity: capacity(2), Penalty: 4}, {ID: 3, Capacity: capacity(2), Penalty: 4},
			},
			before:      map[int]Numbers{1: {PenaltyLeft: 3}, 2: {Served: 1}, 3: {PenaltyLeft: 1}},
			cands:       []Candidate{{ID: 1, Position: 1}},
			picks:       1,
			want:        []int64{1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 2}, 2: {Served: 1}},
		},
		"a pick of a queue lowers the other penalised queues, not those that serve": {
			queues: []ModelQueue{
				{ID: 1, Capacity: capacity(2), Penalty: 4}, {ID: 2, Capacity: capacity(3), Penalty: 4}, {ID: 3, Capacity: capacity(2), Penalty: 4},
			},
			before:      map[int]Numbers{1: {PenaltyLeft: 3}, 2: {Served: 1}, 3: {Served: 1}},
			cands:       waiting(2, 1, 1),
			picks:       1,
			want:        []int64{1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 2}, 2: {Served: 2}, 3: {Served: 1}},
		},
		"a queue that isn't counted lowers the penalised ones": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(1), Penalty: 2}, {ID: 2}},
			before:      map[int]Numbers{1: {PenaltyLeft: 2}},
			cands:       join(waiting(1, 1, 1), waiting(2, 11, 3)),
			picks:       3,
			want:        []int64{11, 12, 1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 2}},
		},
		"no penalty: never counted": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2)}},
			cands:       join(waiting(1, 1, 4), waiting(0, 11, 1)),
			picks:       5,
			want:        []int64{1, 2, 3, 4, 11},
			wantNumbers: map[int]Numbers{},
		},
		"no capacity: never counted": {
			queues:      []ModelQueue{{ID: 1, Penalty: 9}},
			cands:       join(waiting(1, 1, 4), waiting(0, 11, 1)),
			picks:       5,
			want:        []int64{1, 2, 3, 4, 11},
			wantNumbers: map[int]Numbers{},
		},
		"waiver: the penalised queue is alone, and counts from 0": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(3), Penalty: 5}},
			before:      map[int]Numbers{1: {PenaltyLeft: 4}},
			cands:       waiting(1, 1, 2),
			picks:       2,
			want:        []int64{1, 2},
			wantNumbers: map[int]Numbers{1: {Served: 2}},
		},
		"waiver at capacity 1: the penalty starts anew": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(1), Penalty: 5}},
			before:      map[int]Numbers{1: {PenaltyLeft: 1}},
			cands:       waiting(1, 1, 2),
			picks:       1,
			want:        []int64{1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 5}},
		},
		"all penalised: precedence decides, not the smaller penalty, and the rest comes down": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 9}, {ID: 2, Capacity: capacity(2), Penalty: 9}},
			before:      map[int]Numbers{1: {PenaltyLeft: 8}, 2: {PenaltyLeft: 2}},
			cands:       join(waiting(1, 11, 3), waiting(2, 1, 1)),
			picks:       3,
			want:        []int64{11, 12, 1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 8}, 2: {Served: 1}},
		},
		"all penalised, the first without a candidate": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 9}, {ID: 2, Capacity: capacity(2), Penalty: 9}},
			before:      map[int]Numbers{1: {PenaltyLeft: 8}, 2: {PenaltyLeft: 9}},
			cands:       waiting(2, 1, 1),
			picks:       1,
			want:        []int64{1},
			wantNumbers: map[int]Numbers{1: {PenaltyLeft: 7}, 2: {Served: 1}},
		},
		"an order that waits for its job's limit is passed": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 2}},
			cands:       []Candidate{{ID: 1, Position: 1, Queue: 1, Class: 4}, {ID: 2, Position: 2, Queue: 1}, {ID: 3, Position: 3, Class: 4}},
			classLeft:   map[int]int{4: 0},
			picks:       3,
			want:        []int64{2},
			wantNumbers: map[int]Numbers{1: {Served: 1}},
		},
		"a batch takes the places of a job's limit, queue or not": {
			queues: []ModelQueue{{ID: 1}},
			cands: []Candidate{
				{ID: 1, Position: 1, Queue: 1, Class: 4}, {ID: 2, Position: 2, Queue: 1, Class: 4}, {ID: 3, Position: 3, Class: 4},
				{ID: 4, Position: 4, Class: 5}, {ID: 5, Position: 5, Class: 6},
			},
			classLeft: map[int]int{4: 2, 5: 1},
			picks:     9,
			want:      []int64{1, 2, 4, 5},
		},
		"a penalised queue's waiver also needs the job's limit": {
			queues:    []ModelQueue{{ID: 1, Capacity: capacity(1), Penalty: 2}, {ID: 2, Capacity: capacity(1), Penalty: 2}},
			before:    map[int]Numbers{1: {PenaltyLeft: 2}, 2: {PenaltyLeft: 2}},
			cands:     []Candidate{{ID: 1, Position: 1, Queue: 1, Class: 4}, {ID: 2, Position: 2, Queue: 2}},
			classLeft: map[int]int{4: -1},
			picks:     2,
			want:      []int64{2},
			wantNumbers: map[int]Numbers{
				1: {PenaltyLeft: 1}, 2: {PenaltyLeft: 2},
			},
		},
		"penalty lowered: cut before the next pick, so that the queue is still passed": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(3), Penalty: 1}},
			before:      map[int]Numbers{1: {PenaltyLeft: 6}},
			cands:       join(waiting(1, 1, 1), waiting(0, 11, 2)),
			picks:       3,
			want:        []int64{11, 1, 12},
			wantNumbers: map[int]Numbers{1: {Served: 1}},
		},
		"penalty removed: served at once": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(3)}},
			before:      map[int]Numbers{1: {PenaltyLeft: 6}},
			cands:       join(waiting(1, 1, 1), waiting(0, 11, 1)),
			picks:       2,
			want:        []int64{1, 11},
			wantNumbers: map[int]Numbers{},
		},
		"penalty raised: a running one isn't longer": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(3), Penalty: 9}},
			before:      map[int]Numbers{1: {PenaltyLeft: 1}},
			cands:       join(waiting(1, 1, 1), waiting(0, 11, 2)),
			picks:       3,
			want:        []int64{11, 1, 12},
			wantNumbers: map[int]Numbers{1: {Served: 1}},
		},
		"capacity lowered below served: one more pick starts the penalty": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 2}},
			before:      map[int]Numbers{1: {Served: 4}},
			cands:       join(waiting(1, 1, 2), waiting(0, 11, 2)),
			picks:       4,
			want:        []int64{1, 11, 12, 2},
			wantNumbers: map[int]Numbers{1: {Served: 1}},
		},
		"capacity lowered below served: the booking of another starts nothing": {
			queues:      []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 2}},
			before:      map[int]Numbers{1: {Served: 4}},
			cands:       waiting(0, 11, 1),
			picks:       1,
			want:        []int64{11},
			wantNumbers: map[int]Numbers{1: {Served: 4}},
		},
		"capacity removed: the numbers are gone": {
			queues:      []ModelQueue{{ID: 1, Penalty: 2}},
			before:      map[int]Numbers{1: {PenaltyLeft: 2}},
			cands:       join(waiting(0, 1, 1), waiting(1, 11, 1)),
			picks:       2,
			want:        []int64{11, 1},
			wantNumbers: map[int]Numbers{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &ModelResource{Queues: tc.queues, Numbers: tc.before}
			candsBefore, leftBefore := join(tc.cands), fmt.Sprint(tc.classLeft)
			picks := r.PickN(tc.picks, tc.cands, tc.classLeft)
			if diff := cmp.Diff(tc.want, ids(picks)); diff != "" {
				t.Errorf("picks (-want +got):\n%s", diff)
			}
			if tc.wantNumbers != nil {
				if diff := cmp.Diff(tc.wantNumbers, nonZero(r.Numbers)); diff != "" {
					t.Errorf("numbers (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(candsBefore, join(tc.cands)); diff != "" || leftBefore != fmt.Sprint(tc.classLeft) {
				t.Errorf("the arguments were changed: class limits %v, candidates (-before +after):\n%s", tc.classLeft, diff)
			}
		})
	}
}

func nonZero(numbers map[int]Numbers) map[int]Numbers {
	kept := map[int]Numbers{}
	for id, n := range numbers {
		if n != (Numbers{}) {
			kept[id] = n
		}
	}
	return kept
}

func TestModelPickAloneChangesNothing(t *testing.T) {
	t.Parallel()
	r := &ModelResource{
		Queues:  []ModelQueue{{ID: 1, Capacity: capacity(2), Penalty: 3}},
		Numbers: map[int]Numbers{1: {PenaltyLeft: 3}},
	}
	// A lock stores its pick until it fits, and drops it unbooked if the order
	// leaves the line: then the penalty still stands.
	if c, ok := r.Pick(waiting(1, 1, 1), nil); !ok || c.ID != 1 {
		t.Fatalf("picked %v, %t; want order 1 by the waiver", c, ok)
	}
	if c, ok := r.Pick(join(waiting(1, 1, 1), waiting(0, 11, 1)), nil); !ok || c.ID != 11 {
		t.Errorf("picked %v, %t; want order 11, since the waiver wasn't booked", c, ok)
	}
	if diff := cmp.Diff(map[int]Numbers{1: {PenaltyLeft: 3}}, r.Numbers); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

func TestModelNormalize(t *testing.T) {
	t.Parallel()
	r := &ModelResource{
		Queues: []ModelQueue{
			{ID: 1, Capacity: capacity(2), Penalty: 3},
			{ID: 2, Capacity: capacity(2), Penalty: 3},
			{ID: 3, Capacity: capacity(2)},
			{ID: 4, Penalty: 3},
			{ID: 5, Capacity: capacity(2), Penalty: 3},
		},
		Numbers: map[int]Numbers{
			1: {PenaltyLeft: 6}, 2: {PenaltyLeft: 2}, 3: {PenaltyLeft: 1}, 4: {Served: 1}, 5: {Served: 4}, 6: {Served: 1},
		},
	}
	r.Normalize()
	want := map[int]Numbers{1: {PenaltyLeft: 3}, 2: {PenaltyLeft: 2}, 5: {Served: 4}}
	if diff := cmp.Diff(want, r.Numbers); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

func TestModelInQueueAndOverflow(t *testing.T) {
	t.Parallel()
	r := &ModelResource{Queues: []ModelQueue{{ID: 1, Capacity: capacity(2)}, {ID: 2}}}
	cands := []Candidate{
		{ID: 5, Position: 3, Queue: 1}, {ID: 4, Position: 3, Queue: 1}, {ID: 9, Position: 1, Queue: 1}, {ID: 1, Position: 9, Queue: 1},
		{ID: 3, Position: 2, Queue: 2}, {ID: 2, Position: 1, Queue: 2}, {ID: 7, Position: 1, Queue: 8}, {ID: 8, Position: 1},
	}
	cases := map[string]struct {
		queue    int
		in, over []int64
	}{
		"bounded":    {queue: 1, in: []int64{9, 4}, over: []int64{5, 1}},
		"unbounded":  {queue: 2, in: []int64{2, 3}, over: []int64{}},
		"not listed": {queue: 8, in: []int64{7}, over: []int64{}},
		"none":       {queue: 0, in: []int64{8}, over: []int64{}},
		"empty":      {queue: 6, in: []int64{}, over: []int64{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.in, ids(r.InQueue(cands, tc.queue))); diff != "" {
				t.Errorf("in the queue (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.over, ids(r.Overflow(cands, tc.queue))); diff != "" {
				t.Errorf("overflow (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModelLegalPick(t *testing.T) {
	t.Parallel()
	r := &ModelResource{
		Queues: []ModelQueue{
			{ID: 1, Capacity: capacity(2), Penalty: 3}, {ID: 2, Capacity: capacity(2), Penalty: 3}, {ID: 3}, {ID: 4},
		},
		Numbers: map[int]Numbers{1: {PenaltyLeft: 1}, 2: {PenaltyLeft: 1}},
	}
	q1 := Candidate{ID: 1, Position: 1, Queue: 1}
	q2 := Candidate{ID: 2, Position: 2, Queue: 2}
	q3 := Candidate{ID: 3, Position: 3, Queue: 3}
	q4 := Candidate{ID: 4, Position: 4, Queue: 4}
	other := Candidate{ID: 5, Position: 5}
	unlisted := Candidate{ID: 6, Position: 6, Queue: 9}
	cases := map[string]struct {
		cands  []Candidate
		picked Candidate
		want   string // part of the reason; "": legal
	}{
		"free queue before all":            {cands: []Candidate{q1, q2, q3, q4, other}, picked: q3},
		"second free queue":                {cands: []Candidate{q3, q4}, picked: q4, want: "picked before order 3: the latter waits in queue 3, which precedes queue 4"},
		"other before a free queue":        {cands: []Candidate{q3, other}, picked: other, want: "queue 3, which precedes the line of the others"},
		"other before penalised":           {cands: []Candidate{q1, other}, picked: other},
		"penalised before an other":        {cands: []Candidate{q1, other}, picked: q1, want: "queue 1 is penalised, and the latter waits in the line of the others"},
		"penalised before a free queue":    {cands: []Candidate{q1, q4}, picked: q1, want: "queue 1 is penalised, and the latter waits in queue 4"},
		"penalised, alone":                 {cands: []Candidate{q1, q2}, picked: q1},
		"second penalised":                 {cands: []Candidate{q1, q2}, picked: q2, want: "queue 1, which precedes queue 2"},
		"unlisted queue is an other":       {cands: []Candidate{other, unlisted}, picked: other},
		"unlisted queue behind an other":   {cands: []Candidate{other, unlisted}, picked: unlisted, want: "both wait in the line of the others"},
		"lower position in the same queue": {cands: []Candidate{q3, {ID: 9, Position: 9, Queue: 3}}, picked: Candidate{ID: 9, Position: 9, Queue: 3}, want: "order 9 was picked before order 3: both wait in queue 3"},
		"same position, lower id":          {cands: []Candidate{q3, {ID: 9, Position: 3, Queue: 3}}, picked: Candidate{ID: 9, Position: 3, Queue: 3}, want: "both wait in queue 3"},
		"no candidate":                     {cands: []Candidate{q3}, picked: q4, want: "order 4 was no candidate"},
		"assigned elsewhere since":         {cands: []Candidate{q3}, picked: Candidate{ID: 3, Position: 3, Queue: 4}, want: "order 3 was no candidate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := LegalPick(r, tc.cands, tc.picked)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("legal pick refused: %v", err)
			case tc.want != "" && err == nil:
				t.Errorf("illegal pick accepted, want a reason with %q", tc.want)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("reason is %q, want a part %q", err, tc.want)
			}
		})
	}
}
