package why_test

import (
	"slices"
	"testing"

	"github.com/siding-dev/siding/internal/why/whytest"
)

// With 100,000 orders of one key, in one line, at one lock and blocked in a
// strict line, the answer for one order reads a bounded number of pages by
// indexes, whether the statistics are fresh or don't know yet.
func TestBounded(t *testing.T) {
	t.Parallel()
	const many = 100_000
	for name, test := range map[string]struct {
		first, last string // orders before and behind the many, which are like the first
		prepare     string
		want        string
	}{
		"one key": {
			`{"workflow": "k", "ref": "first", "key": "C1"}`, `{"workflow": "k", "ref": "last", "key": "C1"}`, ``, "key_held",
		},
		"one line": {
			`{"workflow": "w", "ref": "first"}`, `{"workflow": "w", "ref": "last"}`, ``, "behind",
		},
		"one queue": {
			`{"workflow": "w", "ref": "first", "queue": "Q1"}`, `{"workflow": "w", "ref": "last", "queue": "Q1"}`, ``, "queue_overflow",
		},
		"one lock": {
			`{"workflow": "l3", "ref": "first"}`, `{"workflow": "l3", "ref": "last"}`,
			`INSERT INTO siding.grants (order_id, lock_id, version_id, block_path, weight, granted_at)
			 SELECT -1, resource_id, 1, '1', 1, siding.clock() FROM siding.resources WHERE name = 'L1'`, "lock_busy lock_turn",
		},
		"a strict line": {
			`{"workflow": "w", "ref": "first", "attachments": [{"name": "f"}]}`, `{"workflow": "w", "ref": "last"}`,
			`UPDATE siding.lines SET person_mode = 'strict'`, "line_strict",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			if test.prepare != "" {
				w.Exec(test.prepare)
			}
			w.Add(test.first)
			w.Flood("first", many)
			w.Add(test.last)
			w.expect(map[string]string{"last": test.want})
			for _, analyze := range []bool{false, true} {
				if analyze {
					w.Exec(`ANALYZE`)
				}
				cost := w.Explain(w.DB.SQL(`SELECT * FROM siding.obstacles WHERE order_id = $1`), w.ID("last"))
				if slices.ContainsFunc(cost.SeqScans, big) || cost.Buffers > 150 {
					t.Errorf("the view, analyzed %v: %+v", analyze, cost)
				}
				// The rank is counted up to 1,000.
				cost = w.Explain(w.DB.SQL(`SELECT * FROM siding.why($1)`), w.ID("last"))
				if cost.Buffers > 1500 {
					t.Errorf("the function, analyzed %v: %+v", analyze, cost)
				}
			}
		})
	}
}

// big tells the tables that grow with the orders.
func big(table string) bool {
	return slices.Contains([]string{"orders", "attachments", "attentions", "inputs", "runs", "uploads"}, table)
}

// lock_busy says exactly what the grant of a lock decides by.
func TestLockBusyIsWhatTheGrantDecidesBy(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(`{"workflow": "x1", "ref": "hold"}`, `{"workflow": "l1", "ref": "want"}`)
	lock := whytest.Value[int32](w.World, `SELECT resource_id FROM siding.resources WHERE name = 'L1'`)
	for capacity := range 4 {
		for weight := range 4 { // 0: exclusive
			for _, held := range [][]int{nil, {0}, {1}, {2}, {1, 1}, {1, 2}} {
				w.Exec(`DELETE FROM siding.grants`)
				for i, h := range held {
					w.Exec(`INSERT INTO siding.grants (order_id, lock_id, version_id, block_path, weight, granted_at)
						VALUES (-$1::bigint, $2, 1, '1', nullif($3, 0), siding.clock())`, i+1, lock, h)
				}
				w.Exec(`UPDATE siding.resources SET capacity = $1 WHERE resource_id = $2`, capacity, lock)
				w.Exec(`UPDATE siding.orders SET class_id = $1 WHERE id = $2`, weight, w.ID("want"))
				fits := whytest.Value[bool](w.World, `SELECT siding.fits($1, $2, nullif($3::int, 0))`, lock, capacity, weight)
				busy := whytest.Value[bool](w.World, `SELECT EXISTS (SELECT FROM siding.obstacles WHERE order_id = $1 AND code IN ('lock_busy', 'exceeds_capacity'))`, w.ID("want"))
				if fits == busy {
					t.Errorf("capacity %d, weight %d, held %v: fits %v, obstacle %v", capacity, weight, held, fits, busy)
				}
			}
		}
	}
}
