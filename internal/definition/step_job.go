package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Job is a step that an agent runs.
type Job struct {
	// Name is unique in the workflow.
	Name string `json:"job"`
	// Run is a shell script, Argv a command without a shell, Noop no process at
	// all (for benchmarks and scenarios). Exactly one is set.
	Run  string   `json:"run,omitempty"`
	Argv []string `json:"argv,omitempty"`
	Noop bool     `json:"noop,omitempty"`
	// Env is added to the environment. Names that start with SIDING_ belong to the
	// agent.
	Env map[string]string `json:"env,omitempty"`
	// SuccessCodes are the exit codes of a success, sorted; none means 0.
	SuccessCodes []int `json:"success_codes,omitempty"`
	// Processes is the job's own process limit; nil means none.
	Processes *int `json:"processes,omitempty"`
	Policy
}

const reservedEnv = "SIDING_"

func decodeJob(d *decoder, n *node, path string) Step {
	j := new(Job)
	d.object(n, path, append([]field{
		{name: "job", set: text(d, &j.Name)},
		{name: "run", set: text(d, &j.Run)},
		{name: "argv", set: d.texts(&j.Argv, d.word)},
		{name: "noop", set: d.boolean(&j.Noop)},
		{name: "env", set: func(n *node, path string) {
			if !d.isKind(n, path, mapNode) {
				return
			}
			j.Env = map[string]string{}
			d.members(n, path, func(e entry, at string) {
				if value, ok := d.word(e.value, at); ok {
					j.Env[e.key] = value
				}
			})
		}},
		{name: "success_codes", set: func(n *node, path string) {
			j.SuccessCodes = []int{}
			d.list(n, path, func(n *node, path string) {
				code := 0
				d.integer(&code)(n, path)
				j.SuccessCodes = append(j.SuccessCodes, code)
			})
		}},
		{name: "processes", set: d.optionalInteger(&j.Processes)},
	}, j.Policy.fields(d)...))
	return Step{Job: j}
}

func (j *Job) normalise() {
	j.Argv = nonEmpty(j.Argv)
	if len(j.Env) == 0 {
		j.Env = nil
	}
	j.Policy.normalise()
}

func (j *Job) validate(v *validation, path string, in *scope) {
	name := member(path, "job")
	v.name(name, j.Name)
	if before, twice := in.jobs[j.Name]; twice && j.Name != "" {
		v.add(name, fmt.Sprintf("the job %s exists already, at %s", cut(j.Name), before), "job names are unique in a workflow")
	} else {
		in.jobs[j.Name] = path
	}
	j.validateRun(v, path)
	for i, code := range j.SuccessCodes {
		if code < 0 || code > 255 {
			v.add(element(member(path, "success_codes"), i), fmt.Sprintf("must be between 0 and 255, is %d", code), "")
		}
	}
	if j.SuccessCodes != nil && len(j.SuccessCodes) == 0 {
		v.add(member(path, "success_codes"), "without a code the job could never succeed", "leave it out for [0]")
	}
	if j.Processes != nil {
		v.atLeast(member(path, "processes"), *j.Processes, 1, "leave it out for no limit")
	}
	j.Policy.validate(v, path, in.workflow.Defaults)
	if j.Agent == "" && in.workflow.Defaults.Agent == "" && !v.seen["defaults"] && !v.seen["defaults.agent"] {
		v.add(member(path, "agent"), "missing", "state it here or in the workflow's defaults")
	}
	// The sorted form only now, so that problems name the places people wrote.
	j.SuccessCodes = slices.Compact(slices.Sorted(slices.Values(j.SuccessCodes)))
}

// validateRun checks what the job runs.
func (j *Job) validateRun(v *validation, path string) {
	var given []string
	if j.Run != "" || v.seen[member(path, "run")] {
		given = append(given, "run")
	}
	if j.Argv != nil || v.seen[member(path, "argv")] {
		given = append(given, "argv")
	}
	if j.Noop || v.seen[member(path, "noop")] {
		given = append(given, "noop")
	}
	switch len(given) {
	case 0:
		v.add(path, "doesn't say what the job runs", "run: a shell script, argv: [...], or noop: true for no process")
	case 1:
	default:
		v.add(member(path, given[1]), fmt.Sprintf("the job has both %s and %s", given[0], given[1]), "keep one")
	}
	if j.Run != "" && !storableText(j.Run) {
		v.add(member(path, "run"), notStorable, "")
	}
	for i, word := range j.Argv {
		if !storableText(word) {
			v.add(element(member(path, "argv"), i), notStorable, "")
		}
	}
	if len(j.Argv) > 0 && j.Argv[0] == "" {
		v.add(element(member(path, "argv"), 0), "the command is empty", "")
	}
	if j.Noop && (len(j.Env) > 0 || len(j.SuccessCodes) > 0) {
		v.add(member(path, "noop"), "a job without a process has no env and no success_codes", "")
	}
	for _, name := range slices.Sorted(maps.Keys(j.Env)) {
		at := member(member(path, "env"), name)
		switch {
		case !envPattern.MatchString(name):
			v.add(at, quote(name)+" is not the name of a variable", "letters, digits and underscores, no digit first")
		case strings.HasPrefix(name, reservedEnv):
			v.add(at, "names that start with "+reservedEnv+" belong to the agent", "")
		case !storableText(j.Env[name]):
			v.add(at, notStorable, "")
		}
	}
}

const notStorable = "is not text in UTF-8, or holds a zero character"

func (j *Job) references(path string, add func(Kind, string, string)) {
	if j.Agent != "" {
		add(KindAgent, j.Agent, member(path, "agent"))
	}
}

func (j *Job) takeLocks(*lockGraph, []string) {}

func (j *Job) flatten(f *flattening, path string) error {
	defaults := f.workflow.Defaults
	step := FlatStep{
		Path: path, Job: j.Name, Agent: j.Agent,
		MaxAttempts: DefaultMaxAttempts, OnLost: LostRetry, Processes: j.Processes,
		Locks: nonEmpty(f.locks),
		Run:   j.Run, Argv: j.Argv, Noop: j.Noop, Env: j.Env, SuccessCodes: j.SuccessCodes,
	}
	if step.Agent == "" {
		step.Agent = defaults.Agent
	}
	if step.Agent == "" {
		return fmt.Errorf("job %s has no agent", j.Name)
	}
	for _, p := range []Policy{defaults, j.Policy} {
		if p.MaxAttempts != nil {
			step.MaxAttempts = *p.MaxAttempts
		}
		if p.Timeout != nil {
			step.Timeout = p.Timeout.Std()
		}
		if p.OnLost != "" {
			step.OnLost = p.OnLost
		}
	}
	step.BackoffFirst, step.BackoffMax = effectiveBackoff(j.Policy, defaults)
	if len(step.SuccessCodes) == 0 && !step.Noop {
		step.SuccessCodes = []int{0}
	}
	f.steps = append(f.steps, step)
	return nil
}
