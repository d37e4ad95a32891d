package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

func names(entries []catalog.Entry) string {
	text := ""
	for _, e := range entries {
		text += e.Name + " "
	}
	return text
}

// numbers are served and penalty_left of the queues that a resource lists.
func (r *room) numbers(resource string) [][]int {
	r.t.Helper()
	var served, left []int
	err := r.db.Pool.QueryRow(r.t.Context(), r.db.SQL(`
		SELECT n.served, n.penalty_left
		FROM (SELECT r.resource_id, array_agg(q.queue_id ORDER BY l.rank) AS listed, array_agg(q.capacity ORDER BY l.rank) AS capacity,
		             array_agg(q.penalty ORDER BY l.rank) AS penalty
		      FROM siding.resources r JOIN siding.resource_queues l ON l.resource_id = r.resource_id JOIN siding.queues q ON q.queue_id = l.queue_id
		      WHERE r.name = $1 GROUP BY r.resource_id) d, siding.numbers(d.resource_id, listed, capacity, penalty) n`), resource).Scan(&served, &left)
	if err != nil {
		r.t.Fatal(err)
	}
	return [][]int{served, left}
}

// A changed capacity or penalty applies to the numbers at once: a lowered
// penalty cuts what is left, served above a lowered capacity starts the penalty
// at the next booking, and what was taken off a list is forgotten.
func TestNumbersAfterAChange(t *testing.T) {
	t.Parallel()
	r := empty(t)
	queue := func(name, rest string) string { return "kind: queue\nname: " + name + "\n" + rest }
	const lock = "kind: lock\nname: L1\ncapacity: 100\nqueues: "
	r.apply(queue("Q1", "capacity: 3\npenalty: 9\n") + "---\n" + queue("Q2", "capacity: 5\npenalty: 4\n") + "---\n" + lock + "[Q1, Q2]\n---\n" +
		"kind: agent\nname: a1\nprocesses: 1\n---\n" + taking("w", "L1"))
	grant := func(queue string) { r.add(`{"workflow":"w","queue":"` + queue + `"}`) }
	want := func(when string, served, left []int) {
		t.Helper()
		if diff := cmp.Diff([][]int{served, left}, r.numbers("L1")); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	for range 3 {
		grant("Q1")
	}
	want("after three of Q1", []int{0, 0}, []int{9, 0})
	grant("Q2")
	grant("Q2")
	want("and two of Q2", []int{0, 2}, []int{7, 0})
	r.apply(queue("Q1", "capacity: 3\npenalty: 5\n"))
	want("penalty lowered to 5", []int{0, 2}, []int{5, 0})
	r.apply(queue("Q1", "capacity: 3\npenalty: 9\n"))
	want("and raised again", []int{0, 2}, []int{5, 0})
	r.apply(queue("Q2", "capacity: 1\npenalty: 4\n"))
	want("capacity below what was served", []int{0, 2}, []int{5, 0})
	grant("Q2")
	want("the next booking", []int{0, 0}, []int{4, 4})
	r.apply(queue("Q1", "penalty: 9\n"))
	want("no capacity, no numbers", []int{0, 0}, []int{0, 4})
	r.apply(lock + "[Q2]")
	r.apply(lock + "[Q1, Q2]")
	r.apply(queue("Q1", "capacity: 3\npenalty: 9\n"))
	want("back on the list", []int{0, 0}, []int{0, 4})
	r.apply(lock + "[Q1]")
	r.apply(lock + "[Q2, Q1]")
	want("Q2 off the list and back", []int{0, 0}, []int{0, 0})
}

// A raised capacity is used in the transaction that raises it; a lowered one
// revokes nothing.
func TestLockCapacity(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.apply(taking("two", "L2"))
	r.add(`{"workflow":"two"}`, `{"workflow":"two"}`, `{"workflow":"two"}`)
	granted := func() int { return value[int](r, `SELECT count(*) FROM siding.grants`) }
	for _, tt := range []struct {
		capacity string
		want     int
	}{{"1", 1}, {"2", 2}, {"0", 2}, {"1", 2}, {"3", 3}} {
		r.apply("kind: lock\nname: L2\ncapacity: " + tt.capacity)
		if n := granted(); n != tt.want {
			t.Errorf("%d grants at capacity %s, want %d", n, tt.capacity, tt.want)
		}
	}
}

// woken collects what an apply wakes.
type woken struct{ lines []int32 }

func (w *woken) Wake(lines ...int32) { w.lines = append(w.lines, lines...) }
func (*woken) WakeIntake()           {}

// Who waits for a process is woken when the limit is raised, and nobody when
// nothing changed.
func TestApplyWakes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := &woken{}
	c := catalog.New(r.db, w)
	docs, err := definition.Parse("f.yaml", []byte("kind: agent\nname: a1\nprocesses: 5\nqueues: [Q1]"))
	if err != nil {
		t.Fatal(err)
	}
	var _ db.Waker = w
	for range 2 {
		if _, err := c.Apply(t.Context(), docs, "ann"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int32{value[int32](r, `SELECT resource_id FROM siding.resources WHERE name = 'a1'`)}, w.lines); diff != "" {
			t.Error(diff)
		}
	}
}
