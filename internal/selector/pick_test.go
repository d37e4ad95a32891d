package selector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/invariant/soak"
	"github.com/siding-dev/siding/internal/selector"
)

// row is an order as the test made it.
type row struct {
	id, position int64
	line, queue  int32
	class        int32
	late         bool
	started      bool // attempts of the order were there before
	blocked      bool // its attachment gate is closed
	running      bool
}

// rule holds the database against the model: orders come and go, definitions
// change, and every pick must be what the model says.
type rule struct {
	*world
	rows    []*row
	models  map[int32]*selector.ModelResource // by resource
	limit   int                               // of the agent
	classes map[int]int                       // limit by class
	weight  int                               // capacity of the lock
	paused  map[int32]bool                    // queues
	strict  bool
	nextID  int64
	booked  int64 // the last booking that was looked at
}

// define draws queues and lists and applies them.
func (r *rule) define(t *rapid.T) {
	var text strings.Builder
	defined := map[string]selector.ModelQueue{}
	for i := range 5 {
		name := fmt.Sprintf("Q%d", i+1)
		q := selector.ModelQueue{ID: int(r.queues[name]), Penalty: rapid.IntRange(0, 5).Draw(t, "penalty")}
		fmt.Fprintf(&text, "kind: queue\nname: %s\npenalty: %d\n", name, q.Penalty)
		if rapid.IntRange(0, 3).Draw(t, "bounded") > 0 {
			n := rapid.IntRange(1, 4).Draw(t, "capacity")
			q.Capacity = &n
			fmt.Fprintf(&text, "capacity: %d\n", n)
		}
		text.WriteString("---\n")
		defined[name] = q
	}
	list := func(resource int32) string {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Q1", "Q2", "Q3", "Q4"}), 0, 4, rapid.ID[string]).Draw(t, "listed")
		m := r.models[resource]
		m.Queues = nil
		for _, name := range names {
			m.Queues = append(m.Queues, defined[name])
		}
		m.Normalize()
		return strings.Join(names, ", ")
	}
	r.limit = rapid.IntRange(0, 8).Draw(t, "processes")
	fmt.Fprintf(&text, "kind: agent\nname: a\ntype: standalone\nprocesses: %d\nqueues: [%s]\n---\n", r.limit, list(r.agent))
	r.weight = rapid.IntRange(1, 3).Draw(t, "lock capacity")
	fmt.Fprintf(&text, "kind: lock\nname: L\ncapacity: %d\nqueues: [%s]\n---\n", r.weight, list(r.lock))
	one, two := rapid.IntRange(1, 3).Draw(t, "limit one"), rapid.IntRange(1, 3).Draw(t, "limit two")
	text.WriteString(workflowText(one, two))
	r.classes = map[int]int{int(r.world.classes[1]): one, int(r.world.classes[2]): two}
	r.apply(t, text.String())
	// What the change wrote is no pick.
	r.booked = value[int64](r.world, `SELECT coalesce(max(booking_no), 0) FROM siding.bookings`)
}

// add draws orders and writes their rows.
func (r *rule) add(t *rapid.T) {
	batch := &pgx.Batch{}
	for range rapid.IntRange(1, 10).Draw(t, "orders") {
		r.nextID++
		o := &row{
			id: r.nextID, position: rapid.Int64Range(1, 15).Draw(t, "position"), late: rapid.Bool().Draw(t, "late"),
			blocked: rapid.IntRange(0, 7).Draw(t, "blocked") == 0,
		}
		if name := rapid.SampledFrom([]string{"", "", "Q1", "Q2", "Q3", "Q4", "Q5"}).Draw(t, "queue"); name != "" {
			o.queue = r.queues[name]
		}
		step := 0
		if rapid.IntRange(0, 4).Draw(t, "at the lock") == 0 {
			o.line, o.class = r.lock, rapid.Int32Range(0, 3).Draw(t, "weight")
		} else {
			step = rapid.IntRange(0, 2).Draw(t, "job")
			o.line, o.class, o.started = r.agent, r.world.classes[step], rapid.IntRange(0, 3).Draw(t, "started") == 0
		}
		r.rows = append(r.rows, o)
		batch.Queue(r.db.SQL(`INSERT INTO siding.streams (line_id, class_id, queue_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`), o.line, o.class, o.queue)
		batch.Queue(r.db.SQL(`
			INSERT INTO siding.orders (id, position, added_at, step_id, line_id, class_id, queue_id, late, started_at, attachment_closed, lock_closed)
			VALUES ($1, $2, siding.clock(), $3, $4, $5, $6, $7, CASE WHEN $8 THEN siding.clock() END, $9, $10)`),
			o.id, o.position, r.steps[step], o.line, o.class, o.queue, o.late, o.started, o.blocked, o.line == r.lock)
	}
	if err := r.db.Pool.SendBatch(r.ctx, batch).Close(); err != nil {
		t.Fatal(err)
	}
}

// candidates are the orders of a line that may be picked, held ones excepted.
func (r *rule) candidates(line int32, held []int64) []selector.Candidate {
	var barrier *row
	if r.strict && line == r.agent {
		for _, o := range r.rows {
			if o.line == line && o.blocked && !o.running && (barrier == nil || before(o, barrier)) {
				barrier = o
			}
		}
	}
	var found []selector.Candidate
	for _, o := range r.rows {
		switch {
		case o.line != line, o.running, o.blocked, r.paused[o.queue], slices.Contains(held, o.id):
		case line == r.lock && int(o.class) > r.weight: // could never fit
		case barrier != nil && !o.started && before(barrier, o):
		default:
			c := selector.Candidate{ID: o.id, Position: o.position, Queue: int(o.queue)}
			if line == r.agent {
				c.Class = int(o.class)
			}
			found = append(found, c)
		}
	}
	return found
}

func before(a, b *row) bool {
	return a.position < b.position || a.position == b.position && a.id < b.id
}

func (r *rule) running() (all int, classLeft map[int]int) {
	classLeft = map[int]int{}
	for class, limit := range r.classes {
		classLeft[class] = limit
	}
	for _, o := range r.rows {
		if o.running {
			all++
			if left, limited := classLeft[int(o.class)]; limited {
				classLeft[int(o.class)] = max(left-1, 0)
			}
		}
	}
	return all, classLeft
}

// booking is what the log says about one pick.
type booking struct {
	Order  int64
	Queue  int
	Waived bool
	// Numbers of the listed queues, in precedence order.
	Served, PenaltyLeft []int
}

// expect tells what the model picks and books.
func expect(m *selector.ModelResource, n int, cands []selector.Candidate, classLeft map[int]int) (ids []int64, bookings []booking) {
	counted := slices.ContainsFunc(m.Queues, selector.ModelQueue.Counted)
	before := m.Clone()
	picks := m.PickN(n, cands, classLeft)
	for _, c := range picks {
		ids = append(ids, c.ID)
		b := booking{Order: c.ID, Queue: c.Queue, Waived: before.Numbers[c.Queue].PenaltyLeft > 0}
		before.Book(c)
		for _, q := range before.Queues {
			b.Served = append(b.Served, before.Numbers[q.ID].Served)
			b.PenaltyLeft = append(b.PenaltyLeft, before.Numbers[q.ID].PenaltyLeft)
		}
		if counted {
			bookings = append(bookings, b)
		}
	}
	return ids, bookings
}

// newBookings reads what was booked since the last look.
func (r *rule) newBookings(t *rapid.T, resource int32) []booking {
	rows, err := r.db.Pool.Query(r.ctx, r.db.SQL(`
		SELECT booking_no, order_id, queue_id, waived, served, penalty_left FROM siding.bookings
		WHERE resource_id = $1 AND booking_no > $2 ORDER BY booking_no`), resource, r.booked)
	if err != nil {
		t.Fatal(err)
	}
	var found []booking
	for rows.Next() {
		var b booking
		if err := rows.Scan(&r.booked, &b.Order, &b.Queue, &b.Waived, &b.Served, &b.PenaltyLeft); err != nil {
			t.Fatal(err)
		}
		found = append(found, b)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return found
}

func same(t *rapid.T, what string, want, got any) {
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-model +database):\n%s", what, diff)
	}
}

// claim claims for the agent; every pick starts.
func (r *rule) claim(t *rapid.T) {
	slots := rapid.IntRange(1, 9).Draw(t, "slots")
	running, classLeft := r.running()
	var want []int64
	var wantBookings []booking
	if n := min(slots, r.limit-running); n > 0 {
		want, wantBookings = expect(r.models[r.agent], n, r.candidates(r.agent, nil), classLeft)
	}
	var got []int64
	err := r.db.Pool.QueryRow(r.ctx, r.db.SQL(`
		SELECT array_agg(order_id ORDER BY lease_no) FROM siding.claim($1, ARRAY[$2::bigint], ARRAY[gen_random_uuid()], ARRAY[$3::int])`),
		r.agent, r.session, slots).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "claimed", want, got)
	same(t, "bookings", wantBookings, r.newBookings(t, r.agent))
	for _, o := range r.rows {
		if slices.Contains(got, o.id) {
			o.running, o.started = true, true
		}
	}
}

// grant picks at the lock, books, and takes the picks out of the line.
func (r *rule) grant(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "grants")
	want, wantBookings := expect(r.models[r.lock], n, r.candidates(r.lock, nil), nil)
	var got []int64
	err := r.db.Pool.QueryRow(r.ctx, r.db.SQL(`
		WITH picked AS MATERIALIZED (SELECT * FROM siding.pick($1, $2))
		SELECT nullif(p.ids, '{}') FROM picked p
		CROSS JOIN LATERAL siding.book($1, p.ids, NULL, p.queue_ids, p.waived, p.listed, p.served, p.penalty_left)`),
		r.lock, n).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "granted", want, got)
	same(t, "bookings", wantBookings, r.newBookings(t, r.lock))
	r.remove(t, got)
}

func (r *rule) remove(t *rapid.T, ids []int64) {
	if _, err := r.db.Pool.Exec(r.ctx, r.db.SQL(`DELETE FROM siding.orders WHERE id = ANY ($1)`), ids); err != nil {
		t.Fatal(err)
	}
	r.rows = slices.DeleteFunc(r.rows, func(o *row) bool { return slices.Contains(ids, o.id) })
}

// look picks without booking, while somebody else holds some rows.
func (r *rule) look(t *rapid.T) {
	var held []int64
	for _, o := range r.rows {
		if rapid.IntRange(0, 5).Draw(t, "held") == 0 {
			held = append(held, o.id)
		}
	}
	n := rapid.IntRange(1, 12).Draw(t, "picks")
	line := rapid.SampledFrom([]int32{r.agent, r.lock}).Draw(t, "line")
	var classLeft map[int]int
	if line == r.agent {
		_, classLeft = r.running()
	}
	want, _ := expect(r.models[line].Clone(), n, r.candidates(line, held), classLeft)

	other, err := r.db.Pool.Begin(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(r.ctx) }()
	if _, err := other.Exec(r.ctx, r.db.SQL(`SELECT FROM siding.orders WHERE id = ANY ($1) FOR UPDATE`), held); err != nil {
		t.Fatal(err)
	}
	var got []int64
	if err := r.db.Pool.QueryRow(r.ctx, r.db.SQL(`SELECT nullif(ids, '{}') FROM siding.pick($1, $2)`), line, n).Scan(&got); err != nil {
		t.Fatal(err)
	}
	same(t, fmt.Sprintf("picks beside held %v", held), want, got)
}

// TestPickEqualsModel: whatever stands in line and however definitions change,
// the database picks what the model picks, in the same order, and books the
// same numbers.
func TestPickEqualsModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := 0
	prop := func(t *rapid.T) {
		run++
		w.reset()
		r := &rule{
			world: w, paused: map[int32]bool{}, nextID: int64(run) * 100000,
			models: map[int32]*selector.ModelResource{w.agent: {}, w.lock: {}},
		}
		r.define(t)
		t.Repeat(map[string]func(*rapid.T){
			"add":    r.add,
			"claim":  r.claim,
			"claim2": r.claim,
			"grant":  r.grant,
			"look":   r.look,
			"define": r.define,
			"finish": func(t *rapid.T) {
				var done []int64
				for _, o := range r.rows {
					if o.running && rapid.Bool().Draw(t, "done") {
						done = append(done, o.id)
					}
				}
				r.remove(t, done)
			},
			"unblock": func(t *rapid.T) {
				for _, o := range r.rows {
					if o.blocked && rapid.Bool().Draw(t, "complete") {
						o.blocked = false
						if _, err := r.db.Pool.Exec(r.ctx, r.db.SQL(`UPDATE siding.orders SET attachment_closed = false, late = true WHERE id = $1`), o.id); err != nil {
							t.Fatal(err)
						}
					}
				}
			},
			"pause": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"Q1", "Q2", "Q3"}).Draw(t, "paused")
				id := r.queues[name]
				r.paused[id] = !r.paused[id]
				statement := `SELECT siding.unpause('queue', $1, 'test', 'test')`
				if r.paused[id] {
					statement = `SELECT siding.pause('queue', $1, NULL, 'test', 'test')`
				}
				if _, err := r.db.Pool.Exec(r.ctx, r.db.SQL(statement), name); err != nil {
					t.Fatal(err)
				}
			},
			"mode": func(t *rapid.T) {
				r.strict = !r.strict
				_, err := r.db.Pool.Exec(r.ctx, r.db.SQL(`UPDATE siding.lines SET mode = CASE WHEN $1 THEN 'strict' ELSE 'pass' END WHERE line_id = $2`), r.strict, r.agent)
				if err != nil {
					t.Fatal(err)
				}
			},
		})
	}
	soak.Check(t, 25, prop)
}

// TestPickWorkedExample is the worked example of docs/concepts.md, Who goes next.
func TestPickWorkedExample(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reset()
	w.apply(t, "kind: queue\nname: Q1\ncapacity: 5\npenalty: 2\n---\nkind: queue\nname: Q2\ncapacity: 3\npenalty: 6\n---\n"+
		"kind: agent\nname: a\ntype: standalone\nprocesses: 3\nqueues: [Q1, Q2]\n")
	for i := range 30 {
		queue := []int32{w.queues["Q1"], w.queues["Q2"], 0}[i/10]
		w.exec(`INSERT INTO siding.streams (line_id, class_id, queue_id) VALUES ($1, 0, $2) ON CONFLICT DO NOTHING`, w.agent, queue)
		w.exec(`INSERT INTO siding.orders (id, position, added_at, step_id, line_id, queue_id) VALUES ($1, $1, siding.clock(), $2, $3, $4)`,
			i+1, w.steps[0], w.agent, queue)
	}
	var got []string
	for len(got) < 30 {
		ids := value[[]int64](w, `
			SELECT array_agg(order_id ORDER BY lease_no) FROM siding.claim($1, ARRAY[$2::bigint], ARRAY[gen_random_uuid()], ARRAY[3])`, w.agent, w.session)
		if len(ids) == 0 {
			t.Fatalf("after %d picks nothing is picked", len(got))
		}
		for _, id := range ids {
			got = append(got, []string{"Q1", "Q2", "N"}[(id-1)/10])
		}
		w.exec(`DELETE FROM siding.orders WHERE id = ANY ($1)`, ids)
	}
	want := "Q1 Q1 Q1 Q1 Q1 Q2 Q2 Q1 Q1 Q1 Q1 Q1 Q2 N N N N N N Q2 Q2 Q2 N N N N Q2 Q2 Q2 Q2"
	if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
		t.Errorf("picks (-want +got):\n%s", diff)
	}
}

// TestDefinitionLosesItsQueues: where picks were booked, a definition may still
// list no queue any more; its numbers are forgotten.
func TestDefinitionLosesItsQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reset()
	agent := func(queues string) string {
		return "kind: queue\nname: Q1\ncapacity: 2\npenalty: 3\n---\nkind: agent\nname: a\ntype: standalone\nprocesses: 3\nqueues: [" + queues + "]\n"
	}
	numbers := func() []int {
		return value[[]int](w, `SELECT served || penalty_left FROM siding.bookings WHERE resource_id = $1 ORDER BY booking_no DESC LIMIT 1`, w.agent)
	}
	w.apply(t, agent("Q1"))
	w.exec(`INSERT INTO siding.streams (line_id, class_id, queue_id) VALUES ($1, 0, $2) ON CONFLICT DO NOTHING`, w.agent, w.queues["Q1"])
	w.exec(`INSERT INTO siding.orders (id, position, added_at, step_id, line_id, queue_id) VALUES (1, 1, siding.clock(), $1, $2, $3)`,
		w.steps[0], w.agent, w.queues["Q1"])
	w.exec(`SELECT FROM siding.claim($1, ARRAY[$2::bigint], ARRAY[gen_random_uuid()], ARRAY[1])`, w.agent, w.session)
	for _, step := range []struct {
		queues string
		want   []int
	}{{"Q1", []int{1, 0}}, {"", nil}, {"Q1", []int{0, 0}}} {
		w.apply(t, agent(step.queues))
		if diff := cmp.Diff(step.want, numbers(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("numbers with queues [%s] (-want +got):\n%s", step.queues, diff)
		}
	}
}
