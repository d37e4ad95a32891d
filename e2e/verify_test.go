package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// watchEvery is how often the invariants are looked at during a run.
const watchEvery = 250 * time.Millisecond

// watchInvariants looks at the invariants until the returned function is called,
// or the test ends: broken ones fail the test.
func watchInvariants(t *testing.T, s *installation) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		seen := map[string]bool{}
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			var text string
			err := s.pool.QueryRow(ctx, `SELECT coalesce(string_agg(i::text, E'\n'), '') FROM siding_report.invariants i`).Scan(&text)
			if err != nil && ctx.Err() == nil {
				text = err.Error()
			}
			if text != "" && !seen[text] {
				seen[text] = true
				t.Errorf("invariants are broken during the run:\n%s", text)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// verify looks at what the run left, in the database and in the jobs' own logs.
func (r *realRun) verify() {
	r.Helper()
	if text, err := os.ReadFile(filepath.Join(r.jobs, "violations")); !os.IsNotExist(err) {
		r.Errorf("the jobs saw what must not be: %v\n%s", err, text)
	}
	slow := r.rows(`SELECT outcome FROM siding_report.runs WHERE order_id = $1`, r.withMode("slow")[0].id)
	if want := []string{"(succeeded)", "(succeeded)"}; !slices.Equal(slow, want) {
		r.Errorf("attempts of the order that ran when its agent was drained: got %v, want %v", slow, want)
	}
	for what, sql := range map[string]string{
		"orders that overtook their key":             `SELECT * FROM siding_report.key_order`,
		"invariants that are broken":                 `SELECT * FROM siding_report.invariants`,
		"orders running":                             `SELECT id FROM siding.orders WHERE state = 'running'`,
		"uploads that nobody will end":               `SELECT upload_id FROM siding.uploads WHERE settled_at IS NULL AND dropped_at IS NULL`,
		"attempts that the drained agent lost":       `SELECT * FROM siding_report.runs WHERE agent = 'a2' AND outcome NOT IN ('succeeded', 'failed', 'handed_back', 'stopped')`,
		"starts before the order was ready":          `SELECT * FROM siding_report.orders WHERE started_at < ready_at`,
		"attachments that aren't what was announced": `SELECT * FROM siding_report.attachments WHERE state = 'complete' AND (size, sha256) IS DISTINCT FROM (expected_size, expected_sha256)`,
	} {
		if found := r.rows(sql); len(found) > 0 {
			r.Errorf("%s:\n%s", what, strings.Join(found, "\n"))
		}
	}
	r.verifyLogs()
}

// attempts are what the jobs of one order wrote.
type attempts struct {
	order  *planned
	starts int
	ends   map[string]int // by job
}

// verifyLogs reads the logs of the keys: the orders of a key stand one after
// another, in the order of their arrival, and each that has finished ran both of
// its jobs to the end.
func (r *realRun) verifyLogs() {
	r.Helper()
	runs, lost := map[int64]int{}, map[int64]bool{}
	for _, row := range r.rows(`SELECT order_id, count(*), bool_or(outcome = 'lost') FROM siding_report.runs GROUP BY order_id`) {
		var id int64
		var n int
		var any string
		if _, err := fmt.Sscanf(strings.NewReplacer("(", "", ")", "", ",", " ").Replace(row), "%d %d %s", &id, &n, &any); err != nil {
			r.Fatalf("%q: %v", row, err)
		}
		runs[id], lost[id] = n, any == "t"
	}
	arrival := map[int64]int{}
	for i, row := range r.rows(`SELECT order_id FROM siding_report.orders ORDER BY key_arrival`) {
		var id int64
		if _, err := fmt.Sscanf(row, "(%d)", &id); err != nil {
			r.Fatalf("%q: %v", row, err)
		}
		arrival[id] = i
	}

	ran := 0
	for key := range keys {
		list := r.readLog(r.at(key, 0).keyName())
		ran += len(list)
		var got, want []int64
		for _, a := range list {
			got = append(got, a.order.id)
			if a.starts > runs[a.order.id] {
				r.Errorf("%s was started %d times, the controller knows of %d", a.order.ref(), a.starts, runs[a.order.id])
			}
			// A job whose agent was killed may have ended without anybody knowing.
			for job, n := range a.ends {
				if n > 1 && !lost[a.order.id] {
					r.Errorf("job %s of %s ran %d times to its end", job, a.order.ref(), n)
				}
			}
		}
		for rank := range ordersPerKey {
			p := r.at(key, rank)
			skipped := p.mode == "doomed" && p.key == 3
			if p.state == "finished" || p.mode == "doomed" {
				want = append(want, p.id)
			}
			at := slices.IndexFunc(list, func(a *attempts) bool { return a.order == p })
			if p.state != "finished" || at < 0 {
				continue
			}
			if ends := list[at].ends; ends["book"] == 0 || ends["check"] == 0 && !skipped {
				r.Errorf("%s has finished, but its jobs ended %v times", p.ref(), ends)
			}
		}
		slices.SortFunc(want, func(a, b int64) int { return arrival[a] - arrival[b] })
		if !slices.Equal(got, want) {
			r.Errorf("orders of key %d ran as %v, want %v", key, got, want)
		}
	}
	r.Logf("jobs' own logs: %d orders ran, each key in the order of arrival", ran)
}

// readLog reads the log of a key: the orders that ran, one entry each. An order
// that comes back after another one fails the test.
func (r *realRun) readLog(key string) []*attempts {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.jobs, "keys", key))
	if err != nil {
		r.Fatal(err)
	}
	var list []*attempts
	for line := range strings.Lines(string(text)) {
		var what, job string
		var id int64
		var attempt int
		if _, err := fmt.Sscan(line, &what, &id, &job, &attempt); err != nil || r.byID[id] == nil {
			r.Fatalf("log of %s: %q: %v", key, line, err)
		}
		if len(list) == 0 || list[len(list)-1].order.id != id {
			if slices.ContainsFunc(list, func(a *attempts) bool { return a.order.id == id }) {
				r.Errorf("log of %s: order %d ran again when another had begun", key, id)
			}
			list = append(list, &attempts{order: r.byID[id], ends: map[string]int{}})
		}
		last := list[len(list)-1]
		switch {
		case what == "start" && job == "check" && last.ends["book"] > 0:
			r.Errorf("log of %s: order %d goes backwards", key, id)
		case what == "start":
			last.starts++
		default:
			last.ends[job]++
		}
	}
	return list
}

// figures prints what there is to know about the run.
func (r *realRun) figures() {
	r.Helper()
	for _, f := range []struct{ title, sql string }{
		{"ready waits (line, queue, orders, p50, p90, p99, max)", `SELECT * FROM siding_report.line_waits ORDER BY line, queue`},
		{"ready waits of orders whose attachment came late", `
			SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY o.started_at - o.ready_at) AS p50, max(o.started_at - o.ready_at) AS max
			FROM siding_report.orders o JOIN siding.attachments a USING (order_id) WHERE o.started_at IS NOT NULL AND o.ready_at = a.changed_at`},
		{"orders by state and reason", `SELECT state, reason, count(*) FROM siding_report.orders GROUP BY state, reason ORDER BY state, reason`},
		{"attempts by agent and outcome", `SELECT agent, outcome, count(*) FROM siding_report.runs GROUP BY agent, outcome ORDER BY agent, outcome`},
		{"attachments by state", `SELECT state, late, count(*), pg_size_pretty(sum(coalesce(size, 0))), pg_size_pretty(max(size)) FROM siding_report.attachments GROUP BY state, late ORDER BY state, late`},
		{"sessions by agent and end", `SELECT r.name, s.end_reason, count(*) FROM siding.sessions s JOIN siding.resources r ON r.resource_id = s.agent_id GROUP BY r.name, s.end_reason ORDER BY r.name, s.end_reason`},
		{"decisions", `SELECT decision, count(*) FROM siding_report.decisions WHERE order_id IS NOT NULL GROUP BY decision ORDER BY decision`},
	} {
		r.Logf("%s:\n\t%s", f.title, strings.Join(r.rows(f.sql), "\n\t"))
	}
	r.Logf("the run took %.1f s", time.Since(r.started).Seconds())
}
