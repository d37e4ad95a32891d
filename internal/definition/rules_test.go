package definition

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseProblems holds for each rule the exact place of the problem.
func TestParseProblems(t *testing.T) {
	t.Parallel()
	queue := "kind: queue\nname: Q1\n"
	lock := "kind: lock\nname: L1\ncapacity: 1\n"
	cluster := "kind: agent\nname: c1\ntype: cluster\n"
	keyed := func(ordering string) string {
		return "kind: workflow\nname: w\nordering: " + ordering + "\nsteps: [{job: x, agent: a1, noop: true}]\n"
	}
	step := func(fields string) string { return someWorkflow + "- {job: x, run: y, " + fields + "}\n" }
	cases := map[string]struct {
		text string
		want []Problem
	}{
		// texts
		"empty file":               {"", []Problem{invalid(1, 1, "")}},
		"only comments":            {"# nothing\n---\n", []Problem{invalid(1, 1, "")}},
		"syntax":                   {queue + "capacity: [1, 2\n", []Problem{invalid(3, 11, "")}},
		"syntax in every document": {queue + "a: b: c\n---\n" + queue + "x: 1\n---\n\"a\n", []Problem{invalid(3, 4, ""), invalid(7, 1, "x"), invalid(9, 1, "")}},
		"tab":                      {queue + "\tcapacity: 1\n", []Problem{invalid(3, 1, "")}},
		"document is a list":       {"- kind: queue\n", []Problem{invalid(1, 1, "")}},
		"document is text":         {"queue\n", []Problem{invalid(1, 1, "")}},
		"not UTF-8":                {queue + "# \xff\n", []Problem{invalid(3, 3, "")}},
		"zero character":           {someWorkflow + "- {job: x, run: \"a\\0\"}\n", []Problem{invalid(6, 17, "steps[0].run")}},
		"tag":                      {queue + "capacity: !!int 5\n", []Problem{invalid(3, 11, "")}},
		"complex key":              {"? kind\n: queue\n", []Problem{invalid(1, 1, "")}},
		"merge key":                {queue + "<<: {capacity: 1}\n", []Problem{invalid(3, 1, "")}},
		"directive":                {"%YAML 1.2\n---\n" + queue, []Problem{invalid(1, 1, "")}},
		"unknown alias":            {queue + "capacity: *c\n", []Problem{invalid(3, 11, "")}},
		"alias of itself":          {someWorkflow + "- &s {lock: {L1: 1}, steps: [*s]}\n", []Problem{invalid(6, 30, "")}},
		"text after a value":       {queue + "capacity: [1] 2\n", []Problem{invalid(3, 15, "")}},
		"bracket too many":         {someWorkflow + "- {job: x, noop: true}}\n", []Problem{invalid(6, 23, "")}},
		"nested too deep":          {queue + "capacity: " + strings.Repeat("[", 65) + strings.Repeat("]", 65), []Problem{invalid(3, 75, "")}},
		"lists too deep":           {strings.Repeat("- ", 100_000) + "a", []Problem{invalid(1, 129, "")}},
		"mappings too deep":        {deepMapping(80), []Problem{invalid(17, 17, "")}},
		"too many fields":          {strings.Repeat("a: 1\n", 100_000), []Problem{invalid(1001, 1, "")}},
		"over 1 MiB":               {queue + "---\nkind: queue\n# " + strings.Repeat("x", 1<<20), []Problem{invalid(3, 1, "")}},

		// documents
		"unknown kind":   {"kind: quueue\nname: Q1\nx: 1\n", []Problem{invalid(1, 7, "kind")}},
		"kind missing":   {"name: Q1\n", []Problem{invalid(1, 1, "kind")}},
		"kind a list":    {"kind: [queue]\n", []Problem{invalid(1, 7, "kind")}},
		"name missing":   {"kind: queue\n", []Problem{invalid(1, 1, "name")}},
		"name empty":     {"kind: queue\nname: ''\n", []Problem{invalid(2, 7, "name")}},
		"name none":      {"kind: queue\nname: \"-\"\n", []Problem{invalid(2, 7, "name")}},
		"name with dash": {"kind: queue\nname: -a\n", []Problem{invalid(2, 7, "name")}},
		"name too long":  {"kind: queue\nname: " + strings.Repeat("x", 129), []Problem{invalid(2, 7, "name")}},
		"name a number":  {"kind: queue\nname: 5\n", []Problem{invalid(2, 7, "name")}},
		"name twice":     {"kind: queue\nname: a\nname: b\n", []Problem{invalid(3, 1, "name")}},
		"defined twice":  {queue + "---\n" + queue, []Problem{invalid(5, 7, "name")}},
		"several problems at once": {"kind: queue\ncapacty: 1\npenalty: x\ncapacity: 0\n",
			[]Problem{invalid(1, 1, "name"), invalid(2, 1, "capacty"), invalid(3, 10, "penalty"), invalid(4, 11, "capacity")}},

		// queues
		"queue capacity 0":        {queue + "capacity: 0\n", []Problem{invalid(3, 11, "capacity")}},
		"queue capacity negative": {queue + "capacity: -2\n", []Problem{invalid(3, 11, "capacity")}},
		"queue capacity text":     {queue + "capacity: \"5\"\n", []Problem{invalid(3, 11, "capacity")}},
		"queue capacity fraction": {queue + "capacity: 5.0\n", []Problem{invalid(3, 11, "capacity")}},
		"queue capacity too big":  {queue + "capacity: 1000000001\n", []Problem{invalid(3, 11, "capacity")}},
		"penalty negative":        {queue + "penalty: -1\n", []Problem{invalid(3, 10, "penalty")}},

		// locks
		"lock without capacity":  {"kind: lock\nname: L1\n", []Problem{invalid(1, 1, "capacity")}},
		"lock capacity null":     {"kind: lock\nname: L1\ncapacity: ~\n", []Problem{invalid(3, 1, "capacity")}},
		"lock capacity negative": {"kind: lock\nname: L1\ncapacity: -1\n", []Problem{invalid(3, 11, "capacity")}},
		"queue listed twice":     {lock + "queues:\n- Q1\n- Q2\n- Q1\n", []Problem{invalid(7, 3, "queues[2]")}},
		"queues a word":          {lock + "queues: Q1\n", []Problem{invalid(4, 9, "queues")}},
		"queues with bad names":  {lock + "queues: [a/b, 5, \"\", Q1]\n", []Problem{invalid(4, 10, "queues[0]"), invalid(4, 15, "queues[1]"), invalid(4, 18, "queues[2]")}},

		// agents
		"standalone without processes": {"kind: agent\nname: a1\n", []Problem{invalid(1, 1, "processes")}},
		"processes negative":           {"kind: agent\nname: a1\nprocesses: -1\n", []Problem{invalid(3, 12, "processes")}},
		"max_blocked negative":         {someAgent + "max_blocked: -1\n", []Problem{invalid(4, 14, "max_blocked")}},
		"agent type":                   {"kind: agent\nname: a1\ntype: clutser\n", []Problem{invalid(3, 7, "type")}},
		"members of a standalone":      {someAgent + "members: [{agent: a2}]\n", []Problem{invalid(4, 10, "members")}},
		"director of a director":       {"kind: agent\nname: d1\ntype: director\ndirector: d2\n", []Problem{invalid(4, 11, "director")}},
		"cluster without members":      {cluster + "members: []\n", []Problem{invalid(4, 10, "members")}},
		"members": {cluster + "members: [{agent: c1}, {agent: a1, priority: -1}, {agent: a1, prio: 1}, {}, a2]\n", []Problem{
			invalid(4, 19, "members[0].agent"), invalid(4, 46, "members[1].priority"), invalid(4, 59, "members[2].agent"),
			invalid(4, 63, "members[2].prio"), invalid(4, 73, "members[3].agent"), invalid(4, 77, "members[4]"),
		}},
		"own director": {cluster + "members: [{agent: a1}]\ndirector: c1\n", []Problem{invalid(5, 11, "director")}},

		// workflows
		"ordering missing":          {"kind: workflow\nname: w\nsteps: [{job: x, agent: a1, noop: true}]\n", []Problem{invalid(1, 1, "ordering")}},
		"ordering unknown":          {keyed("key"), []Problem{invalid(3, 11, "ordering")}},
		"ordering internal word":    {keyed("key_from_order"), []Problem{invalid(3, 11, "ordering")}},
		"ordering a list":           {keyed("[strict]"), []Problem{invalid(3, 11, "ordering")}},
		"ordering with other field": {keyed("{keys: order}"), []Problem{invalid(3, 11, "ordering.key"), invalid(3, 12, "ordering.keys")}},
		"ordering key null":         {keyed("{key: }"), []Problem{invalid(3, 12, "ordering.key")}},
		"template without argument": {keyed("{key: customer}"), []Problem{invalid(3, 17, "ordering.key")}},
		"template with bad braces":  {keyed(`{key: "{customer"}`), []Problem{invalid(3, 17, "ordering.key")}},
		"template is a mapping":     {keyed("{key: {customer}}"), []Problem{invalid(3, 17, "ordering.key")}},
		"key space without keys":    {keyed("independent\nkey_space: k"), []Problem{invalid(4, 12, "key_space")}},
		"key space not a name":      {keyed("strict\nkey_space: a b"), []Problem{invalid(4, 12, "key_space")}},
		"wait limit 0":              {keyed("strict\nwait_limit: 0s"), []Problem{invalid(4, 13, "wait_limit")}},
		"wait limit negative":       {keyed("strict\nwait_limit: -5m"), []Problem{invalid(4, 13, "wait_limit")}},
		"wait limit without unit":   {keyed("strict\nwait_limit: 10"), []Problem{invalid(4, 13, "wait_limit")}},
		"wait limit nonsense":       {keyed("strict\nwait_limit: soon"), []Problem{invalid(4, 13, "wait_limit")}},
		"attachments": {keyed("strict\nattachments: [{name: a/b}, {name: ..}, {name: x, size: -1}, {name: x, sha256: abc}, {size: 1}, x]"), []Problem{
			invalid(4, 22, "attachments[0].name"), invalid(4, 35, "attachments[1].name"), invalid(4, 56, "attachments[2].size"),
			invalid(4, 68, "attachments[3].name"), invalid(4, 79, "attachments[3].sha256"), invalid(4, 85, "attachments[4].name"), invalid(4, 96, "attachments[5]"),
		}},
		"defaults": {keyed("strict\ndefaults: {agent: a b, max_attempts: 0, timeout: 5, on_lost: retyr, backoff: {first: 2h}, procs: 1}"), []Problem{
			invalid(4, 19, "defaults.agent"), invalid(4, 38, "defaults.max_attempts"), invalid(4, 50, "defaults.timeout"),
			invalid(4, 62, "defaults.on_lost"), invalid(4, 78, "defaults.backoff"), invalid(4, 91, "defaults.procs"),
		}},
		"no steps":          {"kind: workflow\nname: w\nordering: strict\nsteps: []\n", []Problem{invalid(4, 8, "steps")}},
		"steps missing":     {"kind: workflow\nname: w\nordering: strict\n", []Problem{invalid(1, 1, "steps")}},
		"step is text":      {someWorkflow + "- x\n", []Problem{invalid(6, 3, "steps[0]")}},
		"step of no kind":   {someWorkflow + "- run: x\n", []Problem{invalid(6, 3, "steps[0]")}},
		"step of two kinds": {someWorkflow + "- {job: x, lock: {L1: 1}}\n", []Problem{invalid(6, 3, "steps[0]")}},
		"step null":         {someWorkflow + "-\n- {job: x, noop: true}\n", []Problem{invalid(6, 2, "steps[0]")}},

		// jobs
		"job name":                  {someWorkflow + "- {job: a b, run: x}\n- {job: , run: x}\n", []Problem{invalid(6, 9, "steps[0].job"), invalid(7, 4, "steps[1].job")}},
		"job name twice":            {someWorkflow + "- {job: x, run: x}\n- {lock: {L1: 1}, steps: [{job: x, run: x}]}\n", []Problem{invalid(7, 33, "steps[1].steps[0].job")}},
		"nothing to run":            {someWorkflow + "- {job: x}\n", []Problem{invalid(6, 3, "steps[0]")}},
		"run empty":                 {someWorkflow + "- {job: x, run: \"\"}\n", []Problem{invalid(6, 3, "steps[0]")}},
		"run and argv":              {step("argv: [y]"), []Problem{invalid(6, 26, "steps[0].argv")}},
		"run of the wrong type":     {someWorkflow + "- {job: x, run: [y]}\n", []Problem{invalid(6, 17, "steps[0].run")}},
		"argv":                      {someWorkflow + "- {job: x, argv: [\"\", true, [a]]}\n", []Problem{invalid(6, 19, "steps[0].argv[0]"), invalid(6, 23, "steps[0].argv[1]"), invalid(6, 29, "steps[0].argv[2]")}},
		"noop with env":             {someWorkflow + "- {job: x, noop: true, env: {A: b}}\n", []Problem{invalid(6, 18, "steps[0].noop")}},
		"env":                       {step("env: {A=B: x, C: true, SIDING_X: y, D: , \"a.b\": x}"), []Problem{invalid(6, 31, `steps[0].env["A=B"]`), invalid(6, 37, "steps[0].env.C"), invalid(6, 53, "steps[0].env.SIDING_X"), invalid(6, 58, "steps[0].env.D"), invalid(6, 68, `steps[0].env["a.b"]`)}},
		"success codes":             {step("success_codes: [0, 256, -1, x]"), []Problem{invalid(6, 39, "steps[0].success_codes[1]"), invalid(6, 44, "steps[0].success_codes[2]"), invalid(6, 48, "steps[0].success_codes[3]")}},
		"no success code":           {step("success_codes: []"), []Problem{invalid(6, 35, "steps[0].success_codes")}},
		"job processes 0":           {step("processes: 0"), []Problem{invalid(6, 31, "steps[0].processes")}},
		"max_attempts":              {step("max_attempts: 1001"), []Problem{invalid(6, 34, "steps[0].max_attempts")}},
		"backoff 0":                 {step("backoff: {first: 0s}"), []Problem{invalid(6, 37, "steps[0].backoff.first")}},
		"backoff above the default": {step("backoff: {max: 1s}"), []Problem{invalid(6, 29, "steps[0].backoff")}},
		"on_lost":                   {step("on_lost: ignore"), []Problem{invalid(6, 29, "steps[0].on_lost")}},
		"no agent":                  {"kind: workflow\nname: w\nordering: strict\nsteps:\n- {job: x, run: y}\n", []Problem{invalid(5, 3, "steps[0].agent")}},

		// lock blocks
		"lock block without steps": {someWorkflow + "- lock: {L1: 1}\n", []Problem{invalid(6, 3, "steps[0].steps")}},
		"lock block without locks": {someWorkflow + "- {lock: {}, steps: [{job: x, run: y}]}\n", []Problem{invalid(6, 10, "steps[0].lock")}},
		"lock a name":              {someWorkflow + "- {lock: L1, steps: [{job: x, run: y}]}\n", []Problem{invalid(6, 10, "steps[0].lock")}},
		"weights": {someWorkflow + "- {job: w, run: y}\n- {lock: {L1: 0, L2: -1, L3: all, L4: 1.5, L5: , \"a/b\": 1, L1: 1}, steps: [{job: x, run: y}]}\n", []Problem{
			invalid(7, 11, "steps[1].lock.L1"), invalid(7, 18, "steps[1].lock.L2"), invalid(7, 30, "steps[1].lock.L3"), invalid(7, 39, "steps[1].lock.L4"),
			invalid(7, 47, "steps[1].lock.L5"), invalid(7, 50, `steps[1].lock["a/b"]`), invalid(7, 60, "steps[1].lock.L1"),
		}},
		"lock held already": {someWorkflow + "- lock: {L1: 1, L2: 1}\n  steps:\n  - lock: {L2: exclusive, L3: 1}\n    steps: [{job: x, run: y}]\n- {lock: {L1: 1}, steps: [{job: z, run: y}]}\n",
			[]Problem{invalid(8, 12, "steps[0].steps[0].lock.L2")}},
		"resume_at":      {someWorkflow + "- {lock: {L1: 1}, resume_at: stop, steps: [{job: x, run: y}]}\n", []Problem{invalid(6, 30, "steps[0].resume_at")}},
		"run in a block": {someWorkflow + "- {lock: {L1: 1}, steps: [{job: x, run: y}], run: z}\n", []Problem{invalid(6, 46, "steps[0].run")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, err := Parse("f.yaml", []byte(c.text))
			if err == nil || docs != nil {
				t.Fatalf("got %d documents and error %v, want an error only", len(docs), err)
			}
			if diff := cmp.Diff(c.want, places(problemsOf(t, err))); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

func deepMapping(levels int) string {
	var out strings.Builder
	for i := range levels {
		out.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return out.String()
}
