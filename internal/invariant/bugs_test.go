package invariant_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/invariant"
)

// mutate changes the text of an installed routine. What it replaces must be
// there, so that the test goes on meaning something when the routine changes.
func (r *racer) mutate(routine string, replace ...string) {
	r.t.Helper()
	text := value[string](r.t, r.ctx, r.replica, `SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'siding'::regnamespace AND proname = $1`, routine)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			r.t.Fatalf("routine %s doesn't contain %q any more", routine, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	r.exec(r.t, r.ctx, text)
}

// body replaces what a plpgsql routine does.
func (r *racer) body(routine, body string) {
	r.t.Helper()
	text := value[string](r.t, r.ctx, r.replica, `SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'siding'::regnamespace AND proname = $1`, routine)
	head, _, found := strings.Cut(text, "AS $function$")
	if !found {
		r.t.Fatalf("routine %s has no body: %s", routine, text)
	}
	r.exec(r.t, r.ctx, head+"AS $function$"+body+"$function$")
}

// TestOldBugsAreSeen: each of these bugs was somebody's once (of other queues,
// or of an earlier version of this one). Put back into a throw-away schema,
// each must be reported; without it the same steps report nothing.
func TestOldBugsAreSeen(t *testing.T) {
	t.Parallel()
	all := func(leases []protocol.Lease, err error) error { return err }
	tests := map[string]struct {
		inject func(r *racer)
		steps  func(r *racer) error
		want   []string // rules, all of which are broken
	}{
		"a batch takes two orders of one key": {
			inject: func(r *racer) {
				r.exec(r.t, r.ctx, `DROP INDEX siding.orders_active_key`) // a tripwire that would stop it
				r.body("yield_contested", `BEGIN RETURN '{}'; END`)
			},
			steps: func(r *racer) error {
				r.placed("one", "k")
				if err := r.orders.Release(r.ctx, r.placed("one", "k"), person, "test"); err != nil {
					return err
				}
				return all(r.claim("a1", 4))
			},
			want: []string{"two_active_of_key", "two_running_of_key", "two_run_of_key"},
		},
		"the end of an order opens all of its key": {
			inject: func(r *racer) {
				r.exec(r.t, r.ctx, `DROP INDEX siding.orders_active_key`)
				r.body("promote_successors", `BEGIN UPDATE siding.orders SET key_closed = false WHERE key = ANY (p_keys); RETURN '{}'; END`)
			},
			steps: func(r *racer) error {
				for range 3 {
					r.placed("one", "k")
				}
				leases, err := r.claim("a1", 1)
				if err != nil {
					return err
				}
				if err := r.finish("a1", leases...); err != nil {
					return err
				}
				return all(r.claim("a1", 4))
			},
			want: []string{"two_active_of_key", "two_run_of_key", "key_overtaken", "started_before_predecessor"},
		},
		"the end of an order opens nobody": {
			inject: func(r *racer) { r.body("promote_successors", `BEGIN RETURN '{}'; END`) },
			steps: func(r *racer) error {
				r.placed("one", "k")
				r.placed("one", "k")
				leases, err := r.claim("a1", 1)
				if err != nil {
					return err
				}
				return r.finish("a1", leases...)
			},
			want: []string{"key_gate"},
		},
		"a pick is booked twice": {
			inject: func(r *racer) {
				r.exec(r.t, r.ctx, `ALTER FUNCTION siding.book RENAME TO book_once`)
				r.exec(r.t, r.ctx, `
					CREATE FUNCTION siding.book(p_resource int, p_orders bigint[], p_leases bigint[], p_queues int[], p_waived boolean[],
						p_listed int[], p_served int[], p_penalty_left int[]) RETURNS void LANGUAGE sql AS $$
						SELECT siding.book_once(p_resource, p_orders, p_leases, p_queues, p_waived, p_listed, p_served, p_penalty_left) FROM generate_series(1, 2)
					$$`)
			},
			steps: queueSteps,
			want:  []string{"lease_booked_twice"},
		},
		"a pick lowers penalties by two": {
			inject: func(r *racer) {
				r.mutate("apply_rule", "v_left[r] := v_left[r] - 1", "v_left[r] := greatest(v_left[r] - 2, 0)")
			},
			steps: queueSteps,
			want:  []string{"booking_numbers"},
		},
		"a penalty is longer than it says": {
			inject: func(r *racer) {
				r.mutate("apply_rule", "v_left[v_choice] := p_penalty[v_choice]", "v_left[v_choice] := p_penalty[v_choice] + 1")
			},
			steps: queueSteps,
			want:  []string{"booking_numbers"},
		},
		"a report is taken without a look at its lease": {
			inject: func(r *racer) {
				r.mutate("report", "o.lease_no = p_leases[width_bucket(o.id, p_orders)]", "true",
					"o.session_id = p_sessions[width_bucket(o.id, p_orders)]", "true")
			},
			steps: func(r *racer) error {
				referee := r.referee
				r.placed("one", "k")
				leases, err := r.claim("a1", 1)
				if err != nil {
					return err
				}
				old := r.sessions["a1"]
				referee.Lost(leases[0].LeaseRef)
				if err := r.endSession("a1", "lost"); err != nil {
					return err
				}
				r.exec(r.t, r.ctx, `UPDATE siding.orders SET due_at = siding.clock() - interval '1 hour'`)
				r.exec(r.t, r.ctx, `SELECT siding.open_due(10)`)
				r.open("a1")
				if _, err := r.claim("a1", 1); err != nil {
					return err
				}
				referee.Ending(leases[0].LeaseRef)
				results, err := r.dispatch.ReportNow(r.ctx, old, []protocol.Report{{LeaseRef: leases[0].LeaseRef, Outcome: protocol.Succeeded}})
				if err != nil {
					return err
				}
				referee.Reported(results[0])
				return nil
			},
			want: []string{"stale_report_accepted"},
		},
		"what runs isn't counted": {
			inject: func(r *racer) { r.mutate("claim", "v_limit - v_running", "v_limit") },
			steps: func(r *racer) error {
				for i := range 6 {
					r.placed("one", fmt.Sprint("k", i))
				}
				for range 2 {
					if _, err := r.claim("a1", 3); err != nil {
						return err
					}
				}
				return nil
			},
			want: []string{"process_limit_exceeded", "too_many_run"},
		},
		"a job's own limit isn't counted": {
			inject: func(r *racer) { r.mutate("apply_rule", "greatest(k.processes - (", "greatest(k.processes - 0 * (") },
			steps: func(r *racer) error {
				r.apply(r.t, r.ctx, `
kind: workflow
name: narrow
ordering: {key: order}
defaults: {agent: a1}
steps: [{job: j, noop: true, processes: 1}]
`)
				r.placed("narrow", "k1")
				r.placed("narrow", "k2")
				for range 2 {
					if _, err := r.claim("a1", 1); err != nil {
						return err
					}
				}
				return nil
			},
			want: []string{"job_limit_exceeded"},
		},
		"one attachment opens the gate for all": {
			inject: func(r *racer) {
				r.body("open_attachment_gate", `BEGIN UPDATE siding.orders SET attachment_closed = false WHERE id = p_order; RETURN '{}'; END`)
			},
			steps: func(r *racer) error {
				added, err := r.orders.Add(r.ctx, []byte(`[{"workflow": "one", "key": "k", "attachments": [{"name": "a"}, {"name": "b"}]}]`), person)
				if err != nil {
					return err
				}
				return r.attachments.Complete(r.ctx, added[0].ID, "a", person)
			},
			want: []string{"attachment_gate"},
		},
		"an outcome is written twice": {
			inject: func(r *racer) {
				r.exec(r.t, r.ctx, `
					CREATE FUNCTION siding.twice() RETURNS trigger LANGUAGE plpgsql AS $$
					BEGIN
						IF pg_trigger_depth() = 1 THEN INSERT INTO siding.outcomes SELECT NEW.*; END IF;
						RETURN NEW;
					END $$`)
				r.exec(r.t, r.ctx, `CREATE TRIGGER twice BEFORE INSERT ON siding.outcomes FOR EACH ROW EXECUTE FUNCTION siding.twice()`)
			},
			steps: queueSteps,
			want:  []string{"two_outcomes", "lease_used_twice"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, injected := range []bool{false, true} {
				r := newRacer(t)
				if injected {
					test.inject(r)
				}
				if err := test.steps(r); err != nil {
					t.Fatalf("bug injected %t: %v", injected, err)
				}
				found, err := invariant.Check(r.ctx, r.db)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, r.referee.Found()...)
				if !injected {
					if len(found) > 0 {
						t.Errorf("without the bug:\n%s", invariant.Describe(found))
					}
					continue
				}
				for _, rule := range test.want {
					if !slices.ContainsFunc(found, func(v invariant.Violation) bool { return v.Rule == rule }) {
						t.Errorf("%s isn't reported, only:\n%s", rule, invariant.Describe(found))
					}
				}
			}
		})
	}
}

// queueSteps picks from a queue until its penalty begins, goes on, and ends.
func queueSteps(r *racer) error {
	for i := range 8 {
		id := r.placed("one", fmt.Sprint("k", i))
		if i%2 == 0 {
			if err := r.orders.Assign(r.ctx, id, "Q", person, "test"); err != nil {
				return err
			}
		}
	}
	for range 4 {
		leases, err := r.claim("a1", 2)
		if err != nil {
			return err
		}
		if err := r.finish("a1", leases...); err != nil {
			return err
		}
	}
	return nil
}
