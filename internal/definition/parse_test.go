package definition

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// problemsOf returns the problems of an error without messages and hints, which
// tests look at only where they matter.
func problemsOf(t *testing.T, err error) []Problem {
	t.Helper()
	if err == nil {
		return nil
	}
	var all *Errors
	if !errors.As(err, &all) {
		t.Fatalf("error is a %T, want *Errors: %v", err, err)
	}
	return all.Problems
}

func places(problems []Problem) []Problem {
	var out []Problem
	for _, p := range problems {
		out = append(out, Problem{Line: p.Line, Column: p.Column, Path: p.Path, Code: p.Code})
	}
	return out
}

func invalid(line, column int, path string) Problem {
	return Problem{Line: line, Column: column, Path: path, Code: CodeInvalid}
}

const (
	someAgent = "kind: agent\nname: a1\nprocesses: 1\n"
	// someWorkflow ends where its steps begin, in line 5.
	someWorkflow = "kind: workflow\nname: w\nordering: independent\ndefaults: {agent: a1}\nsteps:\n"
)

// TestParseNormalForm reads documents and compares their normal forms, which
// must read back to themselves.
func TestParseNormalForm(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		text string
		want string
	}{
		"queue": {
			"kind: queue\nname: Q1\ncapacity: 5            # none: unbounded\npenalty: 2\n",
			`{"kind":"queue","name":"Q1","capacity":5,"penalty":2}`,
		},
		"queue without bounds": {
			"kind: queue\nname: ns.Q-1_x\ncapacity:\n",
			`{"kind":"queue","name":"ns.Q-1_x","penalty":0}`,
		},
		"lock": {
			"kind: lock\nname: L1\ncapacity: 3\nqueues: [Q1, Q2]\n",
			`{"kind":"lock","name":"L1","capacity":3,"queues":["Q1","Q2"]}`,
		},
		"stopped lock": {
			"kind: lock\nname: L1\ncapacity: 0\nqueues: []\n",
			`{"kind":"lock","name":"L1","capacity":0}`,
		},
		"agent is standalone by default": {
			someAgent,
			`{"kind":"agent","name":"a1","type":"standalone","processes":1}`,
		},
		"cluster": {
			"kind: agent\nname: c1\ntype: cluster\nprocesses: 8\nqueues: [Q1]\nmax_blocked: 1000\n" +
				"members: [{agent: a1, priority: 10}, {agent: a3}]\ndirector: d1\n",
			`{"kind":"agent","name":"c1","type":"cluster","processes":8,"queues":["Q1"],"max_blocked":1000,` +
				`"members":[{"agent":"a1","priority":10},{"agent":"a3","priority":0}],"director":"d1"}`,
		},
		"cluster without a limit of its own": {
			"kind: agent\nname: c1\ntype: cluster\nmembers: [{agent: a1}]\n",
			`{"kind":"agent","name":"c1","type":"cluster","members":[{"agent":"a1","priority":0}]}`,
		},
		"workflow of one step": {
			someWorkflow + "- {job: x, noop: true}\n",
			`{"kind":"workflow","name":"w","ordering":"independent","defaults":{"agent":"a1"},"steps":[{"job":"x","noop":true}]}`,
		},
		"strict ordering, key space by default": {
			"kind: workflow\nname: w\nordering: strict\nsteps: [{job: x, agent: a1, argv: [sleep, 5, 0.50, \"a b\"]}]\n",
			`{"kind":"workflow","name":"w","ordering":"strict","key_space":"w",` +
				`"steps":[{"job":"x","argv":["sleep","5","0.50","a b"],"agent":"a1"}]}`,
		},
		"key from the order": {
			"kind: workflow\nname: w\nordering: {key: order}\nkey_space: w\nsteps: [{job: x, agent: a1, run: \"<a> && b\"}]\n",
			`{"kind":"workflow","name":"w","ordering":{"key":"order"},"key_space":"w","steps":[{"job":"x","run":"<a> && b","agent":"a1"}]}`,
		},
		"aliases": {
			someWorkflow + "- {job: x, noop: true, backoff: &b {first: 1s}}\n- {job: y, noop: true, backoff: *b}\n",
			`{"kind":"workflow","name":"w","ordering":"independent","defaults":{"agent":"a1"},"steps":[` +
				`{"job":"x","noop":true,"backoff":{"first":"1s"}},{"job":"y","noop":true,"backoff":{"first":"1s"}}]}`,
		},
		"everything": {
			`kind: workflow
name: intake
ordering: {key: "{customer}"}
key_space: customers
wait_limit: 1d
attachments: [{name: scan, size: 11, sha256: ` + strings.Repeat("AB", 32) + `}, {name: b.txt}]
defaults: {agent: c1, max_attempts: 5, backoff: {first: 2s, max: 1h}, timeout: 10m0s, on_lost: retry}
steps:
  - job: check
    run: |
      ./check.sh "$SIDING_ATTACHMENT_SCAN"

      echo "a: b" # kept
    env: {MODE: fast, N: 5, VERSION: 1.10}
    success_codes: [3, 0, 3]
    processes: 2
    timeout: 0s
    backoff: {}
  - lock: {L2: exclusive, L1: 2, ns.L3: shared}
    steps:
      - job: book
        run: book --customer {customer}
        on_lost: attention
      - lock: {L4: 1}
        resume_at: step
        steps: [{job: inner, noop: true, agent: a1}]
allow_cycle: true
`,
			`{"kind":"workflow","name":"intake","ordering":{"key":"{customer}"},"key_space":"customers","wait_limit":"24h",` +
				`"attachments":[{"name":"scan","size":11,"sha256":"` + strings.Repeat("ab", 32) + `"},{"name":"b.txt"}],` +
				`"defaults":{"agent":"c1","max_attempts":5,"backoff":{"first":"2s","max":"1h"},"timeout":"10m","on_lost":"retry"},` +
				`"steps":[{"job":"check","run":"./check.sh \"$SIDING_ATTACHMENT_SCAN\"\n\necho \"a: b\" # kept\n",` +
				`"env":{"MODE":"fast","N":"5","VERSION":"1.10"},"success_codes":[0,3],"processes":2,"timeout":"0s"},` +
				`{"lock":{"L1":2,"L2":"exclusive","ns.L3":1},"resume_at":"block","steps":[` +
				`{"job":"book","run":"book --customer {customer}","on_lost":"attention"},` +
				`{"lock":{"L4":1},"resume_at":"step","steps":[{"job":"inner","noop":true,"agent":"a1"}]}]}],"allow_cycle":true}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{c.text, strings.ReplaceAll(c.text, "\n", "\r\n"), "\ufeff" + c.text, c.want} {
				docs, err := Parse("f.yaml", []byte(text))
				if err != nil {
					t.Fatalf("Parse: %v\n%s", err, text)
				}
				if len(docs) != 1 {
					t.Fatalf("%d documents, want 1", len(docs))
				}
				got, err := docs[0].Normal()
				if err != nil {
					t.Fatalf("Normal: %v", err)
				}
				if diff := cmp.Diff(c.want, string(got)); diff != "" {
					t.Errorf("normal form (-want +got):\n%s", diff)
				}
				loaded, err := Load(docs[0].Kind, got)
				if err != nil {
					t.Fatalf("Load: %v", err)
				}
				if diff := cmp.Diff(docs[0].body(), loaded.body()); diff != "" {
					t.Errorf("loaded (-parsed +loaded):\n%s", diff)
				}
			}
		})
	}
}

func TestParseSeveralDocuments(t *testing.T) {
	t.Parallel()
	type place struct {
		Kind Kind
		Name string
		Line int
	}
	queue := func(name string) string { return "kind: queue\nname: " + name + "\n" }
	cases := map[string]struct {
		file, text string
		want       []place
	}{
		"separated":             {"f.yaml", queue("a") + "---\n" + queue("b"), []place{{KindQueue, "a", 1}, {KindQueue, "b", 4}}},
		"empty ones in between": {"f.yaml", "---\n# c\n---\n" + queue("a") + "---\n---\n\n" + queue("b") + "---\n", []place{{KindQueue, "a", 4}, {KindQueue, "b", 9}}},
		"content at the marker": {"f.yaml", "--- {kind: queue, name: a}\n--- # c\n" + queue("b"), []place{{KindQueue, "a", 1}, {KindQueue, "b", 3}}},
		"ended by dots":         {"f.yaml", queue("a") + "...\n---\n" + queue("b"), []place{{KindQueue, "a", 1}, {KindQueue, "b", 5}}},
		"marker in a script": {"f.yaml", someWorkflow + "- job: x\n  run: |\n    a\n    ---\n    b\n---\n" + queue("b"),
			[]place{{KindWorkflow, "w", 1}, {KindQueue, "b", 12}}},
		"same name, other kind": {"f.yaml", queue("a") + "---\nkind: lock\nname: a\ncapacity: 1\n", []place{{KindQueue, "a", 1}, {KindLock, "a", 4}}},
		"json":                  {"f.json", `{"kind":"queue","name":"a"}` + "\n\n" + ` {"kind":"queue","name":"b"}`, []place{{KindQueue, "a", 1}, {KindQueue, "b", 3}}},
		"json by content":       {"-", "\n{\"kind\":\"queue\",\n\t\"name\":\"a\"}", []place{{KindQueue, "a", 2}}},
		"flow mapping":          {"f.yaml", "{kind: queue, name: a}\n---\n{kind: queue, name: b}", []place{{KindQueue, "a", 1}, {KindQueue, "b", 3}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, err := Parse(c.file, []byte(c.text))
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			var got []place
			for _, d := range docs {
				got = append(got, place{d.Kind, d.Name(), d.Line})
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseExample reads the example of the documentation.
func TestParseExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := Parse("example.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	var world World
	for _, d := range docs {
		world.Add(d)
	}
	for _, d := range docs {
		if err := CheckAgainst(d, world); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	_, err := Parse("f.yaml", []byte("kind: queue\nname: Q1\ncapactiy: 5\npenalty: -1\n---\nknd: lock\n"))
	want := strings.Join([]string{
		"f.yaml:3:1: capactiy: unknown field (did you mean capacity?)",
		"f.yaml:4:10: penalty: must be at least 0, is -1",
		"f.yaml:6:1: kind: missing (known: queue, lock, agent, workflow)",
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		kind       Kind
		name, body string
		want       string // normal form
		problems   []Problem
	}{
		"name from the address": {KindQueue, "Q1", `{"capacity": 5}`, `{"kind":"queue","name":"Q1","capacity":5,"penalty":0}`, nil},
		"same name and kind":    {KindQueue, "Q1", `{"kind":"queue","name":"Q1"}`, `{"kind":"queue","name":"Q1","penalty":0}`, nil},
		"nulls are left out":    {KindLock, "L1", `{"name":null,"capacity":1,"queues":null}`, `{"kind":"lock","name":"L1","capacity":1}`, nil},
		"other name":            {KindQueue, "Q1", "{\n  \"name\": \"Q2\"}", "", []Problem{invalid(2, 11, "name")}},
		"other kind":            {KindQueue, "Q1", `{"kind":"lock"}`, "", []Problem{invalid(1, 9, "kind")}},
		"bad name in address":   {KindQueue, "a/b", `{}`, "", []Problem{invalid(1, 1, "name")}},
		"unknown kind":          {"quue", "a", `{}`, "", []Problem{invalid(1, 1, "kind")}},
		"unknown fields": {KindQueue, "Q1", "{\"penalty\": 1,\n \"Capacity\": 2, \"ü\": {\"x\":[1]}, \"z\":1}", "",
			[]Problem{invalid(2, 2, "Capacity"), invalid(2, 17, `["ü"]`), invalid(2, 33, "z")}},
		"given twice":       {KindQueue, "Q1", `{"penalty": 1, "penalty": 2}`, "", []Problem{invalid(1, 16, "penalty")}},
		"wrong types":       {KindQueue, "Q1", `{"penalty": "1", "capacity": 1.5}`, "", []Problem{invalid(1, 13, "penalty"), invalid(1, 30, "capacity")}},
		"too large":         {KindQueue, "Q1", `{"penalty": 99999999999999999999}`, "", []Problem{invalid(1, 13, "penalty")}},
		"missing field":     {KindLock, "L1", "\n{}", "", []Problem{invalid(2, 1, "capacity")}},
		"not an object":     {KindQueue, "Q1", `[1]`, "", []Problem{invalid(1, 1, "")}},
		"empty":             {KindQueue, "Q1", ` `, "", []Problem{invalid(1, 1, "")}},
		"two values":        {KindQueue, "Q1", `{}{}`, "", []Problem{invalid(1, 1, "")}},
		"syntax":            {KindQueue, "Q1", "{\"penalty\":\n  1,}", "", []Problem{invalid(2, 5, "")}},
		"syntax at the 2nd": {KindQueue, "Q1", "{}\n {\"a\" 1}", "", []Problem{invalid(2, 7, "")}},
		"ends too early":    {KindQueue, "Q1", `{"penalty": 1`, "", []Problem{invalid(1, 14, "")}},
		"YAML":              {KindQueue, "Q1", `penalty: 1`, "", []Problem{invalid(1, 1, "")}},
		"not UTF-8":         {KindQueue, "Q1", "{\n\"\xff\": 1}", "", []Problem{invalid(2, 2, "")}},
		"zero character":    {KindWorkflow, "w", `{"ordering":"strict","steps":[{"job":"a","agent":"a","run":"\u0000"}]}`, "", []Problem{invalid(1, 60, "steps[0].run")}},
		"nested too deep":   {KindQueue, "Q1", `{"penalty": ` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}", "", []Problem{invalid(1, 76, "")}},
		"far too deep":      {KindQueue, "Q1", strings.Repeat("[", 900_000), "", []Problem{invalid(1, 10001, "")}},
		"over 1 MiB":        {KindQueue, "Q1", `{"name": "` + strings.Repeat("x", 1<<20) + `"}`, "", []Problem{invalid(1, 1, "")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc, err := ParseJSON(c.kind, c.name, []byte(c.body))
			if diff := cmp.Diff(c.problems, places(problemsOf(t, err))); diff != "" {
				t.Fatalf("problems (-want +got):\n%s\n%v", diff, err)
			}
			if err != nil {
				return
			}
			got, err := doc.Normal()
			if err != nil {
				t.Fatalf("Normal: %v", err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("normal form (-want +got):\n%s", diff)
			}
		})
	}
}
