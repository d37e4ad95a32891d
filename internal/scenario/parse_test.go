package scenario

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const scenariosDir = "../../scenarios"

// TestParseFiles reads every scenario that the repository ships.
func TestParseFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenariosDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 7 {
		t.Fatalf("found %d scenario files", len(files))
	}
	titles := map[string]string{}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(filepath.Base(file), src)
		if err != nil {
			t.Error(err)
			continue
		}
		if other := titles[s.Title]; other != "" {
			t.Errorf("%s has the title of %s", file, other)
		}
		titles[s.Title] = file
		expects := 0
		for _, step := range s.Steps {
			if step.Word == "expect" || step.Word == "refused" {
				expects++
			}
		}
		if expects == 0 {
			t.Errorf("%s expects nothing", file)
		}
	}
}

func TestParseExample(t *testing.T) {
	t.Parallel()
	s, err := Parse("x.yaml", []byte(`
scenario: one
queues:    [{name: Q1, capacity: 5, penalty: 2}]
locks:     [{name: L1, capacity: 3, queues: [Q1]}]
agents:    [{name: a1, type: standalone, processes: 1, queues: [], max_blocked: 100}]
workflows:
  - name: w
    ordering: {key: order}
    wait_limit: 15m
    agent: a1
    lock: {L1: 1}
    max_attempts: 3
steps:
  - add:
      - {order: J2, workflow: w, key: C2, queue: Q1, due: 5m, wait_limit: 1h, args: {n: 1, to: [x, null]}, attachments: [{name: scan, size: 11, sha256: "ab"}]}
      - {order: "x{9..10}", workflow: w, queue: null, attachments: []}
      - {order: y, workflow: w, key: "", queue: "-"}
  - run: until_idle
  - expect: {started: [J1]}
`))
	if err != nil {
		t.Fatal(err)
	}
	pointer := func(s string) *string { return &s }
	size, due, limit := int64(11), 5*time.Minute, time.Hour
	want := []NewOrder{
		{
			Order: "J2", Workflow: "w", Key: pointer("C2"), Queue: "Q1", DueIn: &due, WaitLimit: &limit,
			Args: []byte(`{"n":1,"to":["x",null]}`), Attachments: []NewAttachment{{Name: "scan", Size: &size, SHA256: "ab"}},
		},
		{Order: "x9", Workflow: "w", Attachments: []NewAttachment{}},
		{Order: "x10", Workflow: "w", Attachments: []NewAttachment{}},
		{Order: "y", Workflow: "w", Key: pointer("")},
	}
	add, ok := s.Steps[0].action.(*addStep)
	if !ok {
		t.Fatalf("the first step is %T", s.Steps[0].action)
	}
	if diff := cmp.Diff(want, add.orders); diff != "" {
		t.Error(diff)
	}
	var words []string
	for _, step := range s.Steps {
		words = append(words, step.Word)
	}
	if diff := cmp.Diff([]string{"add", "run", "expect"}, words); diff != "" {
		t.Error(diff)
	}
	if s.Steps[2].Line != 19 || s.Title != "one" {
		t.Errorf("line %d, title %q", s.Steps[2].Line, s.Title)
	}
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ yaml, want string }{
		"queue": {
			`queues: [{name: Q1, capacity: 5, penalty: 2}]`,
			`{"kind": "queue", "name": "Q1", "capacity": 5, "penalty": 2}`,
		},
		"queue without capacity": {
			`queues: [{name: Q1, capacity: null}]`,
			`{"kind": "queue", "name": "Q1", "capacity": null}`,
		},
		"lock": {
			`locks: [{name: L1, capacity: 0, queues: [Q1, Q2]}]`,
			`{"kind": "lock", "name": "L1", "capacity": 0, "queues": ["Q1", "Q2"]}`,
		},
		"agent": {
			`agents: [{name: a1, type: standalone, processes: 1, queues: [], max_blocked: 100}]`,
			`{"kind": "agent", "name": "a1", "type": "standalone", "processes": 1, "queues": [], "max_blocked": 100}`,
		},
		"cluster": {
			`agents: [{name: c1, type: cluster, processes: 8, director: d1, members: [{agent: a1, priority: 10}]}]`,
			`{"kind": "agent", "name": "c1", "type": "cluster", "processes": 8, "director": "d1", "members": [{"agent": "a1", "priority": 10}]}`,
		},
		"short form": {
			`workflows: [{name: w, ordering: independent, agent: a1}]`,
			`{"kind": "workflow", "name": "w", "ordering": "independent", "defaults": {"agent": "a1"}, "steps": [{"job": "job", "noop": true}]}`,
		},
		"short form in a lock": {
			`workflows: [{name: w, ordering: {key: order}, key_space: k, wait_limit: 15m, agent: a1, lock: {L1: 2, L2: exclusive}, resume_at: step, max_attempts: 3, on_lost: attention, processes: 2, attachments: [{name: scan}]}]`,
			`{"kind": "workflow", "name": "w", "ordering": {"key": "order"}, "key_space": "k", "wait_limit": "15m", "attachments": [{"name": "scan"}],
			  "defaults": {"agent": "a1", "max_attempts": 3, "on_lost": "attention"},
			  "steps": [{"lock": {"L1": 2, "L2": "exclusive"}, "resume_at": "step", "steps": [{"job": "job", "noop": true, "processes": 2}]}]}`,
		},
		"long form": {
			`
workflows:
  - name: w
    ordering: strict
    agent: a1
    defaults: {max_attempts: 5, backoff: {first: 2s, max: 1h}, timeout: 10m}
    allow_cycle: true
    steps:
      - job: check
        run: ./check.sh
        env: {MODE: fast}
        success_codes: [0]
      - lock: {L1: 1}
        steps:
          - {job: book, agent: a2}
          - {job: print, argv: [lp, x]}`,
			`{"kind": "workflow", "name": "w", "ordering": "strict", "allow_cycle": true,
			  "defaults": {"agent": "a1", "max_attempts": 5, "backoff": {"first": "2s", "max": "1h"}, "timeout": "10m"},
			  "steps": [
			    {"job": "check", "run": "./check.sh", "env": {"MODE": "fast"}, "success_codes": [0]},
			    {"lock": {"L1": 1}, "steps": [{"job": "book", "agent": "a2", "noop": true}, {"job": "print", "argv": ["lp", "x"]}]}]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse("x.yaml", []byte("scenario: x\n"+test.yaml+"\nsteps: []\n"))
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Definitions) != 1 {
				t.Fatalf("%d definitions", len(s.Definitions))
			}
			var got, want any
			if err := json.Unmarshal(s.Definitions[0].JSON, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseJobs(t *testing.T) {
	t.Parallel()
	s, err := Parse("x.yaml", []byte(`scenario: x
workflows:
  - {name: one, ordering: strict, agent: a}
  - {name: three, ordering: strict, steps: [{job: a}, {lock: {L: 1}, steps: [{job: b}, {job: c}]}]}
steps: []`))
	if err != nil {
		t.Fatal(err)
	}
	if one, three := s.Definitions[0].Jobs, s.Definitions[1].Jobs; one != 1 || three != 3 {
		t.Errorf("%d and %d jobs", one, three)
	}
}

func TestParseMistakes(t *testing.T) {
	t.Parallel()
	const head = "scenario: x\nsteps:\n"
	tests := map[string]struct {
		src string
		// want are line:column: the beginning of each message.
		want []string
	}{
		"empty":                   {"", []string{"1:1: the file is empty"}},
		"a list":                  {"- a\n", []string{"1:1: a scenario file must be a mapping, not a list"}},
		"no title":                {"steps: []\n", []string{"1:1: a scenario file: scenario is missing"}},
		"no steps":                {"scenario: x\n", []string{"1:1: a scenario file: steps is missing"}},
		"unknown section":         {"scenario: x\nqueue: []\nsteps: []\n", []string{`2:1: a scenario file: unknown field "queue"`}},
		"broken yaml":             {"scenario: [x\nsteps: []\n", []string{"2:1: ',' or ']' must be specified"}},
		"a field twice":           {"scenario: x\nscenario: y\nsteps: []\n", []string{`2:1: mapping key "scenario" already defined`}},
		"two documents":           {"scenario: x\nsteps: []\n---\nscenario: y\nsteps: []\n", []string{"4:1: a scenario file holds one document"}},
		"an alias":                {"scenario: &a x\nsteps: []\n", []string{"1:11: anchors and aliases"}},
		"a tag":                   {"scenario: !!str x\nsteps: []\n", []string{"1:11: tags"}},
		"the same queue twice":    {"scenario: x\nqueues: [{name: Q}, {name: Q}]\nsteps: []\n", []string{"2:21: queue Q is defined already in line 2"}},
		"unknown field":           {"scenario: x\nqueues: [{name: Q, size: 1}]\nsteps: []\n", []string{`2:20: queue: unknown field "size" (known: name, capacity, penalty)`}},
		"wrong type":              {"scenario: x\nqueues: [{name: Q, capacity: many}]\nsteps: []\n", []string{`2:30: capacity must be a whole number, not the text "many"`}},
		"a name that is a number": {"scenario: x\nqueues: [{name: 5}]\nsteps: []\n", []string{"2:17: name must be text, not the number 5; quote it"}},
		"ordering":                {"scenario: x\nworkflows: [{name: w, ordering: loose}]\nsteps: []\n", []string{`2:33: ordering: unknown word "loose"`}},
		"ordering list":           {"scenario: x\nworkflows: [{name: w, ordering: [a]}]\nsteps: []\n", []string{"2:33: ordering must be independent, strict or {key: ...}, not a list"}},
		"short and long":          {"scenario: x\nworkflows: [{name: w, ordering: strict, lock: {L: 1}, steps: [{job: j}]}]\nsteps: []\n", []string{"2:47: lock belongs to the short form"}},
		"default twice":           {"scenario: x\nworkflows: [{name: w, ordering: strict, agent: a, defaults: {agent: b}}]\nsteps: []\n", []string{"2:61: agent is given beside defaults and in them"}},
		"a lock's word":           {"scenario: x\nworkflows: [{name: w, ordering: strict, agent: a, lock: {L: shared}}]\nsteps: []\n", []string{`2:61: lock L: unknown word "shared" (known: exclusive)`}},
		"limit":                   {"scenario: x\nworkflows: [{name: w, ordering: strict, wait_limit: soon}]\nsteps: []\n", []string{`2:53: wait_limit: "soon" is no duration`}},
		"unknown step":            {head + "  - adds: []\n", []string{`3:5: unknown step "adds"`}},
		"two steps in one":        {head + "  - run: 1\n    advance: 1s\n", []string{"4:5: a step is one thing"}},
		"a step that is a word":   {head + "  - run\n", []string{`3:5: a step must be a mapping, not the text "run"`}},
		"run":                     {head + "  - run: forever\n", []string{`3:10: run: unknown word "forever"`}},
		"run none":                {head + "  - run: 0\n", []string{"3:10: run must be between 1 and"}},
		"run list":                {head + "  - run: [1]\n", []string{"3:10: run must be until_idle or a number of starts, not a list"}},
		"add":                     {head + "  - add: [{order: J1, flow: w}]\n", []string{"3:11: an order: workflow is missing", `3:23: an order: unknown field "flow"`}},
		"add nothing":             {head + "  - add: []\n", []string{"3:10: add names no order"}},
		"add a run":               {head + "  - add: [{order: \"Q1*5\", workflow: w}]\n", []string{`3:19: "Q1*5": a run of a queue's orders`}},
		"key type":                {head + "  - add: [{order: J1, workflow: w, key: 5}]\n", []string{"3:41: key must be text, not the number 5"}},
		"attachment":              {head + "  - add: [{order: J1, workflow: w, attachments: [{size: 1}]}]\n", []string{"3:50: an attachment: name is missing"}},
		"range down":              {head + "  - finish: [\"x{3..1}\"]\n", []string{`3:14: range "x{3..1}" goes down`}},
		"range broken":            {head + "  - finish: [\"x{1-3}\"]\n", []string{`3:14: "x{1-3}" is no range`}},
		"range too long":          {head + "  - finish: [\"x{1..999999}\"]\n", []string{`3:14: range "x{1..999999}" has more than`}},
		"ranges too long":         {head + "  - finish: [\"x{1..99999}\", \"x{1..99999}\"]\n", []string{"3:29: the file names more than"}},
		"runs too long":           {head + "  - expect: {started: [\"Q*99999\", \"Q*99999\"]}\n", []string{`3:35: "Q*99999": the file names more than`}},
		"finish no list":          {head + "  - finish: J1\n", []string{`3:13: it must be a list, not the text "J1"`}},
		"finish nothing":          {head + "  - finish: []\n", []string{"3:13: the list is empty"}},
		"two words":               {head + "  - move: {order: J1, to: first, before: J2}\n", []string{"3:11: move needs one of to, before and after"}},
		"move where":              {head + "  - move: {order: J1, to: front}\n", []string{`3:27: to: unknown word "front"`}},
		"move a range":            {head + "  - move: {order: \"x{1..2}\", to: first}\n", []string{"3:19: order must name one order"}},
		"assign what":             {head + "  - assign: {order: J1}\n", []string{"3:13: assign: queue is missing"}},
		"resolve how":             {head + "  - resolve: {order: J1, action: ignore}\n", []string{`3:34: action: unknown word "ignore"`}},
		"mode":                    {head + "  - line: {agent: a, mode: loose}\n", []string{`3:28: mode: unknown word "loose"`}},
		"pause two":               {head + "  - pause: {queue: Q, lock: L}\n", []string{"3:12: pause needs one of queue, agent, lock and workflow"}},
		"store":                   {head + "  - store: gone\n", []string{`3:12: store: unknown word "gone"`}},
		"back in time":            {head + "  - advance: -1s\n", []string{"3:14: advance must not be negative"}},
		"upload":                  {head + "  - upload: {order: J, attachment: f, partial: perhaps}\n", []string{"3:13: upload: bytes is missing", `3:48: partial must be true or false, not the text "perhaps"`}},
		"refused what":            {head + "  - refused: {step: {run: 1}, code: order_final}\n", []string{"3:21: run is never refused"}},
		"code":                    {head + "  - refused: {step: {cancel: [J1]}, code: oder_final}\n", []string{`3:43: code: unknown word "oder_final"`}},
		"expect nothing":          {head + "  - expect: {}\n", []string{"3:13: expect compares nothing"}},
		"expect what":             {head + "  - expect: {state: {J1: ready}}\n", []string{`3:14: expect: unknown field "state"`}},
		"states nothing":          {head + "  - expect: {states: {}}\n", []string{"3:22: states compares nothing"}},
		"state word":              {head + "  - expect: {states: {J1: foo}}\n", []string{`3:27: states J1: unknown word "foo"`}},
		"state word long":         {head + "  - expect: {states: {J1: {state: foo}}}\n", []string{`3:35: state: unknown word "foo"`}},
		"state word of many":      {head + "  - expect: {states: {\"x{1..9}\": foo}}\n", []string{`3:34: states x1: unknown word "foo"`}},
		"why code":                {head + "  - expect: {why: {J1: [key_hold]}}\n", []string{`3:25: why J1: unknown word "key_hold"`}},
		"list":                    {head + "  - expect: {lists: {Q1: {wating: []}}}\n", []string{`3:27: lists Q1: unknown field "wating"`}},
		"line reason":             {head + "  - expect: {lines: {a: {mode: strict, reason: bored}}}\n", []string{`3:48: reason: unknown word "bored"`}},
		"a run in running":        {head + "  - expect: {running: [\"Q1*2\"]}\n", []string{`3:24: "Q1*2": a run of a queue's orders`}},
		"a run of nothing":        {head + "  - expect: {started: [\"Q1*0\"]}\n", []string{`3:24: "Q1*0" is no run of orders`}},
		"several": {head + "  - run: x\n  - foo: 1\n  - advance: 5\n", []string{
			`3:10: run: unknown word "x"`, `4:5: unknown step "foo"`, "5:14: advance must be text, not the number 5",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("x.yaml", []byte(test.src))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(test.want) {
				t.Fatalf("%d mistakes, want %d:\n%v", len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], "x.yaml:"+want) {
					t.Errorf("got  %s\nwant x.yaml:%s", got[i], want)
				}
			}
			var mistake *ParseError
			if !errors.As(err, &mistake) || mistake.Line < 1 || mistake.Column < 1 {
				t.Errorf("no position in %#v", mistake)
			}
		})
	}
}

func TestEveryStepWord(t *testing.T) {
	t.Parallel()
	const steps = `scenario: x
steps:
  - add: [{order: J1, workflow: w}]
  - claim: {agent: a1}
  - finish: [J1]
  - fail: [J1]
  - time_out: [J1]
  - lose: [a1]
  - run: 7
  - upload: {order: J1, attachment: f, bytes: "", partial: true}
  - complete: {order: J1, attachment: f}
  - attach: {order: J1, name: f, size: 0}
  - discard: {order: J1, attachment: f, reason: r}
  - store: unreadable
  - advance: 0s
  - move: {order: J1, after: J2}
  - assign: {order: J1, queue: null}
  - queue: {name: Q1}
  - lock: {name: L1, capacity: 1}
  - agent: {name: a1}
  - workflow: {name: w, ordering: strict}
  - delete_queue: Q1
  - delete_lock: L1
  - delete_agent: a1
  - release: {order: J1}
  - resolve: {order: J1, action: skip}
  - cancel: [J1]
  - suspend: [J1]
  - resume: [J1]
  - line: {agent: a1, mode: auto}
  - pause: {agent: a1, for: 5m}
  - unpause: {lock: L1}
  - refused: {step: {cancel: [J1]}, code: order_final}
  - expect:
      started: []
      granted: {L1: ["x{1..2}", "Q1*2"]}
      states: {J1: ready, J2: {state: attention, reason: r}}
      why: {J1: []}
      lists: {"-": {waiting: [], pending: [], scheduled: [], dead: [], attention: [], suspended: []}}
      in_queue: {Q1: []}
      overflow: {Q1: []}
      lines: {a1: {mode: pass}}
      held_units: {L1: 3}
      running: []
      attempts: {J1: 0}
      ready_wait: {J1: 0s}
      forecast: {L1: ["-*2"]}
`
	s, err := Parse("x.yaml", []byte(steps))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, step := range s.Steps {
		seen[step.Word] = true
	}
	for word := range stepReaders {
		if !seen[word] {
			t.Errorf("%s is not tested", word)
		}
	}
	expect, ok := s.Steps[len(s.Steps)-1].action.(*expectStep)
	if !ok {
		t.Fatalf("the last step is %T", s.Steps[len(s.Steps)-1].action)
	}
	if got, want := len(expect.checks), 19; got != want {
		t.Errorf("%d checks, want %d", got, want)
	}
}

// FuzzParse: whatever the file, Parse answers.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(scenariosDir, "*.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte("scenario: x\nsteps:\n  - expect: {states: {? [a] : b}}\n  -\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("x.yaml", src)
		if (s == nil) == (err == nil) {
			t.Errorf("scenario %v and error %v", s, err)
		}
	})
}
