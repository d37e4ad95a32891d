package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// maybe draws a value or nil.
func maybe[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	return rapid.Ptr(g, true).Draw(t, label)
}

var (
	someText     = rapid.StringN(1, 20, -1).Filter(func(s string) bool { return storableText(s) })
	someDuration = rapid.Custom(func(t *rapid.T) Duration {
		return Duration(rapid.Int64Range(1, 3_600_000).Draw(t, "ms")) * Duration(time.Millisecond)
	})
)

func drawPolicy(t *rapid.T) Policy {
	p := Policy{
		Agent:       rapid.SampledFrom([]string{"", "a1", "ns.a2"}).Draw(t, "agent"),
		MaxAttempts: maybe(t, rapid.IntRange(1, MaxMaxAttempts), "max_attempts"),
		Timeout:     maybe(t, someDuration, "timeout"),
		OnLost:      rapid.SampledFrom([]OnLost{"", LostRetry, LostAttention}).Draw(t, "on_lost"),
	}
	if rapid.Bool().Draw(t, "backoff") {
		first, highest := Duration(time.Second), Duration(time.Hour)
		p.Backoff = &Backoff{First: &first, Max: &highest}
	}
	return p
}

// drawSteps draws steps with unique jobs and locks.
func drawSteps(t *rapid.T, depth int, next *int) []Step {
	var steps []Step
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		*next++
		if depth < 3 && rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			block := &LockBlock{ResumeAt: rapid.SampledFrom([]ResumeAt{"", ResumeAtBlock, ResumeAtStep}).Draw(t, "resume_at")}
			for i := range rapid.IntRange(1, 3).Draw(t, "locks") {
				request := LockRequest{Lock: fmt.Sprintf("L%d.%d", *next, 9-i), Weight: rapid.IntRange(0, 5).Draw(t, "weight")}
				request.Exclusive = request.Weight == 0
				block.Locks = append(block.Locks, request)
			}
			block.Steps = drawSteps(t, depth+1, next)
			steps = append(steps, Step{Lock: block})
			continue
		}
		job := &Job{Name: fmt.Sprintf("j%d", *next), Processes: maybe(t, rapid.IntRange(1, 9), "processes"), Policy: drawPolicy(t)}
		switch rapid.IntRange(0, 2).Draw(t, "run") {
		case 0:
			job.Noop = true
		case 1:
			job.Run = someText.Draw(t, "script")
			job.SuccessCodes = rapid.SliceOfN(rapid.IntRange(0, 255), 1, 4).Draw(t, "codes")
		case 2:
			job.Argv = rapid.SliceOfN(someText, 1, 3).Draw(t, "argv")
			job.Env = rapid.MapOfN(rapid.StringMatching(`[A-RT-Z][A-Z0-9_]{0,5}`), someText, 0, 2).Draw(t, "env")
		}
		steps = append(steps, Step{Job: job})
	}
	return steps
}

func drawWorkflow(t *rapid.T) *Workflow {
	next := 0
	w := &Workflow{
		Name: "w",
		Ordering: rapid.SampledFrom([]Ordering{
			{Kind: Independent}, {Kind: Strict}, {Kind: KeyFromOrder}, {Kind: KeyTemplate, Template: "{a.b}/{c}"},
		}).Draw(t, "ordering"),
		WaitLimit:  maybe(t, someDuration, "wait_limit"),
		Defaults:   drawPolicy(t),
		AllowCycle: rapid.Bool().Draw(t, "allow_cycle"),
	}
	w.Defaults.Agent = "c1"
	if w.Ordering.Kind != Independent {
		w.KeySpace = rapid.SampledFrom([]string{"", "k"}).Draw(t, "key_space")
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "attachments") {
		w.Attachments = append(w.Attachments, Attachment{
			Name: fmt.Sprintf("f%d", i), Size: maybe(t, rapid.Int64Min(0), "size"),
			SHA256: rapid.SampledFrom([]string{"", strings.Repeat("Af", 32)}).Draw(t, "sha256"),
		})
	}
	w.Steps = drawSteps(t, 0, &next)
	return w
}

func drawDocument(t *rapid.T) Document {
	queues := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,5}`), 0, 3, rapid.ID[string]).Draw(t, "queues")
	switch kind := rapid.SampledFrom(Kinds()).Draw(t, "kind"); kind {
	case KindQueue:
		return Document{Kind: kind, Queue: &Queue{Name: "q", Capacity: maybe(t, rapid.IntRange(1, maxInt), "capacity"), Penalty: rapid.IntRange(0, maxInt).Draw(t, "penalty")}}
	case KindLock:
		return Document{Kind: kind, Lock: &Lock{Name: "l", Capacity: rapid.IntRange(0, maxInt).Draw(t, "capacity"), Queues: queues}}
	case KindAgent:
		processes := rapid.IntRange(0, maxInt).Draw(t, "processes")
		agent := &Agent{Name: "a", Processes: &processes, Queues: queues, MaxBlocked: maybe(t, rapid.IntRange(0, maxInt), "max_blocked")}
		if agent.Type = rapid.SampledFrom([]AgentType{"", Standalone, Director, Cluster}).Draw(t, "type"); agent.Type == Cluster {
			agent.Members = []Member{{Agent: "m", Priority: rapid.IntRange(0, 9).Draw(t, "priority")}}
			agent.Director = rapid.SampledFrom([]string{"", "d"}).Draw(t, "director")
		}
		return Document{Kind: kind, Agent: agent}
	default:
		return Document{Kind: kind, Workflow: drawWorkflow(t)}
	}
}

// TestRoundTrip states what the catalog relies on: the normal form of every
// valid document is read back to the same document by every reader, also as
// YAML, and doesn't change when it is written again.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		doc := drawDocument(t)
		if err := Validate(&doc); err != nil {
			t.Fatalf("drawn document is refused: %v", err)
		}
		normal, err := doc.Normal()
		if err != nil {
			t.Fatal(err)
		}
		// JSON is YAML too; the comment keeps it from the reader of JSON.
		asYAML := append([]byte("# YAML\n"), normal...)
		indented := new(bytes.Buffer)
		if err := json.Indent(indented, normal, "", "  "); err != nil {
			t.Fatal(err)
		}
		read := map[string]func() (Document, error){
			"Load":           func() (Document, error) { return Load(doc.Kind, normal) },
			"ParseJSON":      func() (Document, error) { return ParseJSON(doc.Kind, doc.Name(), normal) },
			"Parse":          func() (Document, error) { return one(Parse("f.json", indented.Bytes())) },
			"Parse of YAML":  func() (Document, error) { return one(Parse("f.yaml", asYAML)) },
			"Validate again": func() (Document, error) { again := doc; return again, Validate(&again) },
		}
		for name, f := range read {
			got, err := f()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, normal)
			}
			if diff := cmp.Diff(doc.body(), got.body()); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", name, diff)
			}
			again, err := got.Normal()
			if err != nil || !bytes.Equal(again, normal) {
				t.Fatalf("%s: written again %v:\n%s\nwant\n%s", name, err, again, normal)
			}
		}
	})
}

func one(docs []Document, err error) (Document, error) {
	if err != nil || len(docs) != 1 {
		return Document{}, fmt.Errorf("%d documents: %w", len(docs), err)
	}
	return docs[0], nil
}

// TestValidateLeavesInputAlone: a program's lists are not sorted behind its back.
func TestValidateLeavesInputAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorkflow(t)
		job, locks := &Job{Name: "z", Run: "x", SuccessCodes: []int{2, 1}}, LockRequests{{Lock: "b", Weight: 1}, {Lock: "a", Weight: 1}}
		block := &LockBlock{Locks: locks, Steps: []Step{{Job: job}}}
		steps := append(w.Steps, Step{Lock: block})
		w.Steps = steps
		if err := Validate(&Document{Kind: KindWorkflow, Workflow: w}); err != nil {
			t.Fatal(err)
		}
		if job.SuccessCodes[0] != 2 || locks[0].Lock != "b" || block.ResumeAt != "" || steps[len(steps)-1].Lock != block {
			t.Fatalf("changed: %v, %v, %v", job, locks, block)
		}
	})
}

func TestValidateBuiltDocuments(t *testing.T) {
	t.Parallel()
	workflow := func(steps ...Step) Document {
		return Document{Kind: KindWorkflow, Workflow: &Workflow{Name: "w", Ordering: Ordering{Kind: Strict}, Defaults: Policy{Agent: "a1"}, Steps: steps}}
	}
	job := Step{Job: &Job{Name: "j", Noop: true}}
	deep := job
	for i := range 30 {
		deep = Step{Lock: &LockBlock{Locks: LockRequests{{Lock: fmt.Sprint("L", i), Weight: 1}}, Steps: []Step{deep}}}
	}
	cases := map[string]struct {
		doc  Document
		want []string // paths
	}{
		"good":             {workflow(job), nil},
		"empty":            {Document{}, []string{""}},
		"other kind":       {Document{Kind: KindQueue, Lock: &Lock{Name: "a"}}, []string{""}},
		"no instruction":   {workflow(Step{}, job), []string{"steps[0]"}},
		"two instructions": {workflow(Step{Job: job.Job, Lock: &LockBlock{}}), []string{"steps[0]"}},
		"too deep":         {workflow(deep), []string{strings.Repeat("steps[0].", 21) + "steps"}},
		"zero characters":  {workflow(Step{Job: &Job{Name: "j", Run: "\x00"}}, Step{Job: &Job{Name: "k", Argv: []string{"a", "\xff"}, Env: map[string]string{"A": "\x00"}}}), []string{"steps[0].run", "steps[1].argv[1]", "steps[1].env.A"}},
		"lock twice":       {workflow(Step{Lock: &LockBlock{Locks: LockRequests{{Lock: "a", Weight: 1}, {Lock: "a", Exclusive: true, Weight: 1}}, Steps: []Step{job}}}), []string{"steps[0].lock.a"}},
		"too large":        {Document{Kind: KindQueue, Queue: &Queue{Name: "q", Penalty: maxInt + 1}}, []string{"penalty"}},
		"template":         {Document{Kind: KindWorkflow, Workflow: &Workflow{Name: "w", Ordering: Ordering{Kind: Strict, Template: "{a}"}, Defaults: Policy{Agent: "a"}, Steps: []Step{job}}}, []string{"ordering"}},
		"unknown ordering": {Document{Kind: KindWorkflow, Workflow: &Workflow{Name: "w", Ordering: Ordering{Kind: "x"}, Defaults: Policy{Agent: "a"}, Steps: []Step{job}}}, []string{"ordering"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range problemsOf(t, Validate(&c.doc)) {
				got = append(got, p.Path)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}
