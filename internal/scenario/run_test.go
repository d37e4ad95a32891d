package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is what most runs begin with: a1 with two processes, a2 with one.
const world = `
scenario: t
locks: [{name: L1, capacity: 9}]
agents: [{name: a1, type: standalone, processes: 2}, {name: a2, type: standalone, processes: 1},
  {name: c1, type: cluster, processes: 1, members: [{agent: a1, priority: 1}]}]
workflows:
  - {name: w, ordering: independent, agent: a1, lock: {L1: 1}}
  - {name: v, ordering: independent, agent: a2}
  - name: two
    ordering: independent
    agent: a1
    steps: [{job: first}, {job: second}]
steps:
`

func mustParse(t *testing.T, steps string) *Scenario {
	t.Helper()
	s, err := Parse("t.yaml", []byte(world+steps))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	return s
}

func TestRunAgrees(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"agents claim in the file's order, the first started ends first": `
  - add: [{order: "w{1..5}", workflow: w}, {order: "v{1..2}", workflow: v}]
  - run: until_idle
  - expect: {started: [w1, w2, v1, w3, w4, v2, w5], states: {"w{1..5}": finished, v2: finished}, running: []}`,
		"started is consumed once for all": `
  - add: [{order: w1, workflow: w}, {order: v1, workflow: v}]
  - run: until_idle
  - expect: {started: [w1, v1]}
  - expect: {started: []}
  - add: [{order: w2, workflow: w}]
  - run: until_idle
  - expect: {started: [w2]}`,
		"granted is consumed for each lock, apart from started": `
  - add: [{order: w1, workflow: w}]
  - run: until_idle
  - expect: {granted: {L1: [w1]}}
  - add: [{order: w2, workflow: w}]
  - run: until_idle
  - expect: {granted: {L1: [w2]}, started: [w1, w2]}
  - expect: {granted: {L1: []}}`,
		"runs of a queue": `
  - add: [{order: "w{1..3}", workflow: w, queue: Q1}, {order: "n{1..2}", workflow: w}]
  - run: until_idle
  - expect: {started: ["Q1*2", w3, "-*2"], granted: {L1: ["w{1..3}", "-*1", n2]}}`,
		"a number of starts leaves running what runs": `
  - add: [{order: "w{1..5}", workflow: w}]
  - run: 3
  - expect: {started: [w1, w2, w3], running: [w3, w2], states: {w1: finished, w4: ready}}
  - run: 1
  - expect: {started: [w4], running: [w3, w4]}`,
		"a number of starts takes no more than that in one claim": `
  - add: [{order: "w{1..5}", workflow: w}]
  - run: 1
  - expect: {started: [w1], running: [w1]}`,
		"fewer starts than asked for ends idle": `
  - add: [{order: w1, workflow: w}]
  - run: 7
  - expect: {started: [w1], running: []}`,
		"claim takes the free processes": `
  - add: [{order: "w{1..5}", workflow: w}]
  - claim: {agent: a1, slots: 1}
  - expect: {running: [w1]}
  - claim: {agent: a1}
  - expect: {running: [w2, w1]}
  - claim: {agent: a1}
  - expect: {started: [w1, w2]}`,
		"every job of an order starts": `
  - add: [{order: o1, workflow: two}, {order: o2, workflow: two}, {order: o3, workflow: two}]
  - run: until_idle
  - expect: {started: [o1, o2, o1, o2, o3, o3], states: {"o{1..3}": finished}}`,
		"run includes a lost agent": `
  - add: [{order: w1, workflow: w}]
  - claim: {agent: a1}
  - lose: [a1]
  - run: until_idle
  - expect: {started: [w1, w1], attempts: {w1: 2}}`,
		"an agent that was removed doesn't claim, a new one does": `
  - add: [{order: w1, workflow: w}, {order: v1, workflow: v}]
  - delete_agent: a2
  - agent: {name: a3, type: standalone, processes: 1}
  - workflow: {name: x, ordering: independent, agent: a3}
  - add: [{order: x1, workflow: x}]
  - run: until_idle
  - expect: {started: [w1, x1], states: {v1: ready}}`,
		"an agent turned into a cluster doesn't claim": `
  - add: [{order: v1, workflow: v}]
  - agent: {name: a2, type: cluster, processes: 1}
  - run: until_idle
  - expect: {started: []}`,
		"operations take ranges": `
  - add: [{order: "w{1..4}", workflow: w}]
  - claim: {agent: a1}
  - finish: ["w{1..2}"]
  - cancel: ["w{3..4}"]
  - expect: {states: {w1: finished, w2: finished, "w{3..4}": cancelled}}`,
		"refused": `
  - add: [{order: w1, workflow: w}]
  - run: until_idle
  - refused: {step: {cancel: [w1]}, code: order_final}
  - refused: {step: {cancel: [nobody]}, code: order_not_found}
  - refused: {step: {release: {order: w1, reason: ""}}, code: reason_required}
  - refused: {step: {claim: {agent: nobody}}, code: unknown_agent}
  - refused: {step: {add: [{order: y, workflow: nothing}]}, code: unknown_workflow}
  - refused: {step: {agent: {name: a9, processes: -1}}, code: invalid_definition}`,
		"sets, numbers and durations": `
  - add: [{order: w1, workflow: w}, {order: w2, workflow: w}]
  - advance: 90s
  - claim: {agent: a1, slots: 1}
  - expect:
      why: {w1: [attachment_pending, key_held]}
      lines: {a1: {mode: strict, reason: too_many_blocked}, a2: {mode: strict}}
      held_units: {L1: 3}
      ready_wait: {w1: 1m30s}
      lists: {"-": {waiting: [w2], pending: [w1]}}
      forecast: {a1: [w2], L1: []}`,
		"pending is a set, the first of the forecast are enough": `
  - add: [{order: "w{1..4}", workflow: w}]
  - claim: {agent: a1}
  - expect: {lists: {"-": {pending: [w1, w2]}}, forecast: {a1: [w3]}}`,
		"the long form of a state": `
  - add: [{order: w1, workflow: w}]
  - claim: {agent: a1}
  - fail: [w1]
  - expect: {states: {w1: {state: scheduled, reason: it failed}}}
  - expect: {states: {w1: {state: scheduled}}}`,
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := Run(context.Background(), mustParse(t, steps), newFakeWorld())
			if err != nil {
				t.Fatal(err)
			}
			if !result.OK || len(result.Comparisons) == 0 {
				var out strings.Builder
				if err := result.Print(&out); err != nil {
					t.Error(err)
				}
				t.Fatal(out.String())
			}
		})
	}
}

func TestRunDisagrees(t *testing.T) {
	t.Parallel()
	const some = "  - add: [{order: \"w{1..3}\", workflow: w, queue: Q1}]\n  - claim: {agent: a1}\n"
	tests := map[string]struct {
		steps string
		want  Comparison
	}{
		"another order of starts": {`  - expect: {started: [w2, w1]}`,
			Comparison{What: "started", Expected: []string{"w2", "w1"}, Observed: []string{"w1", "w2"}}},
		"more starts than expected": {`  - expect: {started: [w1]}`,
			Comparison{What: "started", Expected: []string{"w1"}, Observed: []string{"w1", "w2"}}},
		"fewer": {`  - expect: {started: [w1, w2, w3]}`,
			Comparison{What: "started", Expected: []string{"w1", "w2", "w3"}, Observed: []string{"w1", "w2"}}},
		"another queue": {`  - expect: {granted: {L1: ["Q2*1", "-*2"]}}`,
			Comparison{What: "granted L1", Expected: []string{"Q2*1", "-*2"}, Observed: []string{"Q1*2"}}},
		"an unknown order": {`  - expect: {states: {w9: ready}}`,
			Comparison{What: "states w9", Expected: "ready", Observed: "order_not_found"}},
		"an unknown order's attempts": {`  - expect: {attempts: {w9: 1}}`,
			Comparison{What: "attempts w9", Expected: int64(1), Observed: "order_not_found"}},
		"another state": {`  - expect: {states: {w1: {state: attention, reason: lost}}}`,
			Comparison{What: "states w1", Expected: "attention (lost)", Observed: "running"}},
		"another reason": {"  - fail: [w1]\n  - expect: {states: {w1: {state: scheduled, reason: other}}}",
			Comparison{What: "states w1", Expected: "scheduled (other)", Observed: "scheduled (it failed)"}},
		"a code missing": {`  - expect: {why: {w1: [key_held]}}`,
			Comparison{What: "why w1", Expected: []string{"key_held"}, Observed: []string{"key_held", "attachment_pending", "attachment_pending"}}},
		"the order of a waiting list": {"  - add: [{order: w4, workflow: w, queue: Q1}]\n  - expect: {lists: {Q1: {waiting: [w3, w4]}}}",
			Comparison{What: "lists Q1 waiting", Expected: []string{"w3", "w4"}, Observed: []string{"w4", "w3"}}},
		"another mode": {`  - expect: {lines: {a1: {mode: pass}}}`,
			Comparison{What: "lines a1", Expected: "pass", Observed: "strict"}},
		"another reason of a mode": {`  - expect: {lines: {a1: {mode: strict, reason: set_by_person}}}`,
			Comparison{What: "lines a1", Expected: "strict (set_by_person)", Observed: "strict (too_many_blocked)"}},
		"another duration": {`  - expect: {ready_wait: {w1: 1s}}`,
			Comparison{What: "ready_wait w1", Expected: "1s", Observed: "0s"}},
		"a wait of what never started": {`  - expect: {ready_wait: {w3: 0s}}`,
			Comparison{What: "ready_wait w3", Expected: "0s", Observed: "not started"}},
		"a forecast where none is expected": {`  - expect: {forecast: {a1: []}}`,
			Comparison{What: "forecast a1", Expected: []string{}, Observed: []string{"w3"}}},
		"not refused": {`  - refused: {step: {cancel: [w3]}, code: order_final}`,
			Comparison{What: "refused cancel", Expected: "order_final", Observed: "not refused"}},
		"another code": {`  - refused: {step: {cancel: [w9]}, code: order_final}`,
			Comparison{What: "refused cancel", Expected: "order_final", Observed: "order_not_found"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := some + test.steps
			result, err := Run(context.Background(), mustParse(t, steps), newFakeWorld())
			if err != nil {
				t.Fatal(err)
			}
			if result.OK || result.Failure != nil {
				t.Fatalf("got ok %v, failure %v", result.OK, result.Failure)
			}
			test.want.Line = strings.Count(world+steps, "\n") + 1
			if diff := cmp.Diff([]Comparison{test.want}, result.Comparisons); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefusedMayChangeNothing(t *testing.T) {
	t.Parallel()
	w := newFakeWorld()
	w.leak = true
	result, err := Run(context.Background(), mustParse(t, `
  - add: [{order: w1, workflow: w}]
  - run: until_idle
  - refused: {step: {cancel: [w1]}, code: order_final}`), w)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Comparisons[0].Observed; result.OK || got != "order_final, but something changed" {
		t.Errorf("ok %v, observed %v", result.OK, got)
	}
}

func TestRunEndsAtTheFirstRefusal(t *testing.T) {
	t.Parallel()
	result, err := Run(context.Background(), mustParse(t, `
  - add: [{order: w1, workflow: w}]
  - expect: {started: []}
  - cancel: [w1, w1]
  - expect: {started: []}`), newFakeWorld())
	if err != nil {
		t.Fatal(err)
	}
	want := &Failure{
		Line: strings.Count(world, "\n") + 4, Step: "cancel", Code: "order_final",
		Message: "w1: cancel: w1 is final",
	}
	// The second of the two is refused: the first one has made w1 final.
	if diff := cmp.Diff(want, result.Failure); diff != "" {
		t.Error(diff)
	}
	if result.OK || len(result.Comparisons) != 1 {
		t.Errorf("ok %v with %d comparisons", result.OK, len(result.Comparisons))
	}
}

func TestRunNamesTheDefinitionAtFault(t *testing.T) {
	t.Parallel()
	s, err := Parse("t.yaml", []byte(`scenario: t
agents:
  - {name: a1, processes: 1}
  - {name: a2, processes: -1}
steps: []`))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(context.Background(), s, newFakeWorld())
	if err != nil {
		t.Fatal(err)
	}
	want := &Failure{Line: 4, Step: "agent a2", Code: "invalid_definition", Message: "processes is negative"}
	if diff := cmp.Diff(want, result.Failure); diff != "" {
		t.Error(diff)
	}
}

func TestRunThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := newFakeWorld()
	w.endless = true
	result, err := Run(context.Background(), mustParse(t, `
  - add: [{order: w1, workflow: w}]
  - run: until_idle`), w)
	if err != nil {
		t.Fatal(err)
	}
	if f := result.Failure; f == nil || !strings.Contains(f.Message, "does not come to an end") || !strings.Contains(f.Message, "w1, w1") {
		t.Errorf("failure is %+v", f)
	}
}

func TestRunBreaksWithTheWorld(t *testing.T) {
	t.Parallel()
	w := newFakeWorld()
	s := mustParse(t, `  - advance: 1s`)
	w.broken = errBroken
	result, err := Run(context.Background(), s, w)
	if !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	if result == nil || result.OK {
		t.Errorf("result is %+v", result)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	result, err = Run(ctx, s, newFakeWorld())
	if !errors.Is(err, context.Canceled) || result.OK {
		t.Errorf("cancelled: ok %v, %v", result.OK, err)
	}
}

func TestRunPassesOn(t *testing.T) {
	t.Parallel()
	w := newFakeWorld()
	if _, err := Run(context.Background(), mustParse(t, `
  - add: [{order: "w{1..3}", workflow: w}]
  - release: {order: w1}
  - release: {order: w1, reason: said so}
  - cancel: [w1]
  - pause: {queue: Q1, for: 10m}
  - pause: {workflow: w, reason: holiday}
  - delete_queue: Q1`), w); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"add 3", `release w1 "scenario"`, `release w1 "said so"`, `cancel w1 "scenario"`,
		`pause queue Q1 "scenario" 10m0s`, `pause workflow w "holiday" 0s`, "delete queue Q1",
	}
	if diff := cmp.Diff(want, w.calls); diff != "" {
		t.Error(diff)
	}
	if w.settled != 8 {
		t.Errorf("settled %d times, want once after the definitions and after each of 7 steps", w.settled)
	}
}
