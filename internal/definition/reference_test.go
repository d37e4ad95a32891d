package definition

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const referring = `kind: lock
name: L1
capacity: 2
queues: [Q1, Q2]
---
kind: agent
name: c1
type: cluster
queues: [Q1]
members:
- agent: a1
- agent: a2
director: d1
---
kind: workflow
name: w
ordering: strict
defaults: {agent: c1}
steps:
- {job: a, noop: true, agent: a1}
- lock:
    L1: 3
    ns.L2: exclusive
  steps:
  - {job: b, noop: true}
  - {lock: {L3: 2}, steps: [{job: c, noop: true, agent: a2}]}
`

func TestReferences(t *testing.T) {
	t.Parallel()
	docs, err := Parse("f.yaml", []byte(referring))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Reference{
		{{KindQueue, "Q1", "queues[0]", 4}, {KindQueue, "Q2", "queues[1]", 4}},
		{{KindQueue, "Q1", "queues[0]", 9}, {KindAgent, "a1", "members[0].agent", 11}, {KindAgent, "a2", "members[1].agent", 12}, {KindAgent, "d1", "director", 13}},
		{{KindAgent, "c1", "defaults.agent", 18}, {KindAgent, "a1", "steps[0].agent", 20}, {KindLock, "L1", "steps[1].lock.L1", 22},
			{KindLock, "ns.L2", `steps[1].lock["ns.L2"]`, 23}, {KindLock, "L3", "steps[1].steps[1].lock.L3", 26}, {KindAgent, "a2", "steps[1].steps[1].steps[0].agent", 26}},
	}
	for i, doc := range docs {
		if diff := cmp.Diff(want[i], References(doc)); diff != "" {
			t.Errorf("references of %s (-want +got):\n%s", doc.Kind, diff)
		}
	}
}

func TestCheckAgainst(t *testing.T) {
	t.Parallel()
	docs, err := Parse("f.yaml", []byte(referring))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		world World
		want  [][]Problem
	}{
		"all is there": {
			World{
				Queues: map[string]bool{"Q1": true, "Q2": true}, Locks: map[string]int{"L1": 3, "ns.L2": 0, "L3": 2},
				Agents: map[string]AgentType{"a1": Standalone, "a2": Director, "c1": Cluster, "d1": Director},
			},
			[][]Problem{nil, nil, nil},
		},
		"nothing is there": {
			World{},
			[][]Problem{
				{{Line: 4, Column: 10, Path: "queues[0]", Code: CodeUnknownQueue}, {Line: 4, Column: 14, Path: "queues[1]", Code: CodeUnknownQueue}},
				{{Line: 9, Column: 10, Path: "queues[0]", Code: CodeUnknownQueue}, {Line: 11, Column: 10, Path: "members[0].agent", Code: CodeUnknownAgent},
					{Line: 12, Column: 10, Path: "members[1].agent", Code: CodeUnknownAgent}, {Line: 13, Column: 11, Path: "director", Code: CodeUnknownAgent}},
				{{Line: 18, Column: 19, Path: "defaults.agent", Code: CodeUnknownAgent}, {Line: 20, Column: 31, Path: "steps[0].agent", Code: CodeUnknownAgent},
					{Line: 22, Column: 5, Path: "steps[1].lock.L1", Code: CodeUnknownLock}, {Line: 23, Column: 5, Path: `steps[1].lock["ns.L2"]`, Code: CodeUnknownLock},
					{Line: 26, Column: 13, Path: "steps[1].steps[1].lock.L3", Code: CodeUnknownLock}, {Line: 26, Column: 57, Path: "steps[1].steps[1].steps[0].agent", Code: CodeUnknownAgent}},
			},
		},
		"wrong types and weights": {
			World{
				Queues: map[string]bool{"Q1": true, "Q2": true}, Locks: map[string]int{"L1": 2, "ns.L2": 1, "L3": 1},
				Agents: map[string]AgentType{"a1": Standalone, "a2": Cluster, "c1": Cluster, "d1": Standalone},
			},
			[][]Problem{
				nil,
				{{Line: 12, Column: 10, Path: "members[1].agent", Code: CodeInvalid}, {Line: 13, Column: 11, Path: "director", Code: CodeInvalid}},
				{{Line: 22, Column: 5, Path: "steps[1].lock.L1", Code: CodeWeightExceeds}, {Line: 26, Column: 13, Path: "steps[1].steps[1].lock.L3", Code: CodeWeightExceeds}},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, doc := range docs {
				if diff := cmp.Diff(c.want[i], places(problemsOf(t, CheckAgainst(doc, c.world)))); diff != "" {
					t.Errorf("problems of %s (-want +got):\n%s", doc.Kind, diff)
				}
			}
		})
	}
}

func TestErrorsCode(t *testing.T) {
	t.Parallel()
	weight, other := Problem{Code: CodeWeightExceeds}, Problem{Code: CodeUnknownLock}
	for _, c := range []struct {
		problems []Problem
		want     string
	}{
		{[]Problem{weight, weight}, CodeWeightExceeds},
		{[]Problem{weight, other}, CodeInvalid},
		{nil, CodeInvalid},
	} {
		if got := (&Errors{Problems: c.problems}).Code(); got != c.want {
			t.Errorf("Code of %v = %s, want %s", c.problems, got, c.want)
		}
	}
}
