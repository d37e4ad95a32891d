package definition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parseWorkflow parses one workflow that must be good.
func parseWorkflow(t *testing.T, text string) Document {
	t.Helper()
	docs, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return docs[len(docs)-1]
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	doc := parseWorkflow(t, `kind: workflow
name: w
ordering: independent
defaults: {agent: c1, max_attempts: 3, backoff: {first: 5s}, timeout: 10m, on_lost: attention}
steps:
- {job: a, run: x, processes: 2, env: {A: b}, success_codes: [0, 3]}
- lock: {L2: exclusive, L1: 2}
  steps:
  - {job: b, argv: [x, y], agent: a1, max_attempts: 1, backoff: {first: 1s, max: 1m}, timeout: 0s, on_lost: retry}
  - lock: {L3: 1}
    resume_at: step
    steps: [{job: c, noop: true}]
- {job: d, run: x, backoff: {max: 30s}}
`)
	got, err := Flatten(*doc.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	two := 2
	outer := LockScope{Path: "2", ResumeAt: ResumeAtBlock, Locks: LockRequests{{Lock: "L1", Weight: 2}, {Lock: "L2", Exclusive: true}}}
	want := []FlatStep{
		{Path: "1", Next: "2.1", Job: "a", Agent: "c1", MaxAttempts: 3, BackoffFirst: 5 * time.Second, BackoffMax: time.Hour, Timeout: 10 * time.Minute,
			OnLost: LostAttention, Processes: &two, Run: "x", Env: map[string]string{"A": "b"}, SuccessCodes: []int{0, 3}},
		{Path: "2.1", Next: "2.2.1", Job: "b", Agent: "a1", MaxAttempts: 1, BackoffFirst: time.Second, BackoffMax: time.Minute,
			OnLost: LostRetry, Argv: []string{"x", "y"}, SuccessCodes: []int{0}, Locks: []LockScope{outer}},
		{Path: "2.2.1", Next: "3", Job: "c", Agent: "c1", MaxAttempts: 3, BackoffFirst: 5 * time.Second, BackoffMax: time.Hour, Timeout: 10 * time.Minute,
			OnLost: LostAttention, Noop: true,
			Locks: []LockScope{outer, {Path: "2.2", ResumeAt: ResumeAtStep, Locks: LockRequests{{Lock: "L3", Weight: 1}}}}},
		{Path: "3", Job: "d", Agent: "c1", MaxAttempts: 3, BackoffFirst: 5 * time.Second, BackoffMax: 30 * time.Second, Timeout: 10 * time.Minute,
			OnLost: LostAttention, Run: "x", SuccessCodes: []int{0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestFlattenDefaults(t *testing.T) {
	t.Parallel()
	got, err := Flatten(Workflow{Name: "w", Steps: []Step{{Job: &Job{Name: "a", Noop: true, Policy: Policy{Agent: "a1"}}}}})
	want := []FlatStep{{Path: "1", Job: "a", Agent: "a1", MaxAttempts: 5, BackoffFirst: 2 * time.Second, BackoffMax: time.Hour, OnLost: LostRetry, Noop: true}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, steps (-want +got):\n%s", err, diff)
	}
}

func TestFlattenFails(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]Step{
		"no agent":       {{Job: &Job{Name: "a", Noop: true}}},
		"no instruction": {{}},
		"inner step":     {{Lock: &LockBlock{Steps: []Step{{}}}}},
	} {
		if got, err := Flatten(Workflow{Name: "w", Steps: steps}); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

func TestLockCycle(t *testing.T) {
	t.Parallel()
	block := func(steps string, locks string) string {
		return "{lock: {" + locks + "}, steps: [" + steps + "]}"
	}
	job := "{job: j, noop: true}"
	ab := block(block(job, "B: 1"), "A: 1")
	ba := block(block(job, "A: 1"), "B: 1")
	cases := map[string]struct {
		workflows []string // the steps of each, and what follows them
		want      []string
	}{
		"none":                         {nil, nil},
		"one way":                      {[]string{ab, ab}, nil},
		"both ways":                    {[]string{ab, ba}, []string{"A", "B"}},
		"allowed by one":               {[]string{ab, ba + "]\nallow_cycle: true #"}, nil},
		"allowed by another":           {[]string{ab, ba, ba + "]\nallow_cycle: true #"}, []string{"A", "B"}},
		"one after the other":          {[]string{ab, block(job, "B: 1") + "," + block("{job: k, noop: true}", "A: 1")}, nil},
		"several are in name order":    {[]string{block(job, "B: 1, A: 1"), block(job, "A: 1, B: 1")}, nil},
		"against the name order":       {[]string{block(job, "B: 1, A: 1"), ba}, []string{"A", "B"}},
		"within one workflow":          {[]string{ab + "," + block(block("{job: k, noop: true}", "A: 1"), "B: 1")}, []string{"A", "B"}},
		"three":                        {[]string{ab, block(block(job, "C: 1"), "B: 1"), block(block(job, "A: 1"), "C: 1")}, []string{"A", "B", "C"}},
		"the shortest":                 {[]string{ab, block(block(job, "C: 1"), "B: 1"), block(block(job, "A: 1"), "C: 1"), block(block(job, "B: 1"), "C: 1")}, []string{"B", "C"}},
		"across a block":               {[]string{block(block(block(job, "C: 1"), "B: 1"), "A: 1"), block(block(job, "A: 1"), "C: 1")}, []string{"A", "C"}},
		"behind a chain without cycle": {[]string{ab, block(block(job, "D: 1"), "B: 1"), block(block(job, "B: 1"), "D: 1")}, []string{"B", "D"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var workflows []Workflow
			for _, steps := range c.workflows {
				doc := parseWorkflow(t, "kind: workflow\nname: w\nordering: independent\ndefaults: {agent: a1}\nsteps: ["+steps+"]\n")
				workflows = append(workflows, *doc.Workflow)
			}
			if diff := cmp.Diff(c.want, LockCycle(workflows)); diff != "" {
				t.Errorf("cycle (-want +got):\n%s", diff)
			}
		})
	}
}
