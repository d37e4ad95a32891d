package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Step is one instruction of a workflow. Exactly one of the pointers is set.
type Step struct {
	Job  *Job
	Lock *LockBlock
}

// instruction is what each kind of step can do. One file per kind implements
// it.
type instruction interface {
	// normalise fills in defaults.
	normalise()
	// validate checks the step at path.
	validate(v *validation, path string, in *scope)
	// flatten adds the job steps of the step, whose index path is given.
	flatten(f *flattening, path string) error
	// references calls add for each definition that the step names.
	references(path string, add func(Kind, string, string))
	// takeLocks tells the graph which locks the step takes while others are held.
	takeLocks(g *lockGraph, held []string)
}

// stepKind is a kind of step, recognised by the field that names it.
type stepKind struct {
	key    string
	decode func(d *decoder, n *node, path string) Step
	load   func(text []byte) (Step, error)
}

// stepKinds is a function since blocks hold steps again.
func stepKinds() []stepKind {
	return []stepKind{
		{"job", decodeJob, loadStep(func(s *Step) any { s.Job = new(Job); return s.Job })},
		{"lock", decodeLockBlock, loadStep(func(s *Step) any { s.Lock = new(LockBlock); return s.Lock })},
	}
}

func stepKeys() []string {
	var keys []string
	for _, k := range stepKinds() {
		keys = append(keys, k.key)
	}
	return keys
}

// instruction is the one that is set, nil if none or more than one is.
func (s Step) instruction() instruction {
	switch {
	case s.Job != nil && s.Lock == nil:
		return s.Job
	case s.Lock != nil && s.Job == nil:
		return s.Lock
	}
	return nil
}

// MarshalJSON writes the step as in a workflow definition.
func (s Step) MarshalJSON() ([]byte, error) {
	i := s.instruction()
	if i == nil {
		return nil, errors.New("a step must be exactly one instruction")
	}
	return marshal(i)
}

// UnmarshalJSON reads a step from the normal form. It fails for a kind of step
// that this version doesn't know: leaving it out would change what runs.
func (s *Step) UnmarshalJSON(data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return fmt.Errorf("read step: %w", err)
	}
	for _, k := range stepKinds() {
		if _, found := keys[k.key]; !found {
			continue
		}
		step, err := k.load(data)
		if err != nil {
			return fmt.Errorf("read %s step: %w", k.key, err)
		}
		*s = step
		return nil
	}
	return errors.New("read step: unknown kind of step")
}

func loadStep(allocate func(*Step) any) func([]byte) (Step, error) {
	return func(text []byte) (Step, error) {
		var s Step
		err := json.Unmarshal(text, allocate(&s))
		return s, err
	}
}

// steps reads a list of steps.
func (d *decoder) steps(to *[]Step) setter {
	return func(n *node, path string) {
		d.list(n, path, func(n *node, path string) {
			*to = append(*to, d.step(n, path))
		})
	}
}

func (d *decoder) step(n *node, path string) Step {
	if !d.isKind(n, path, mapNode) {
		return Step{}
	}
	var found []stepKind
	for _, k := range stepKinds() {
		if slices.ContainsFunc(n.entries, func(e entry) bool { return e.key == k.key }) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		hint := "one of: " + strings.Join(stepKeys(), ", ")
		for _, e := range n.entries {
			if best, ok := nearest(e.key, stepKeys()); ok {
				hint = fmt.Sprintf("%s: did you mean %s?", cut(e.key), best)
				break
			}
		}
		d.at(n.pos, path, "doesn't say what the step does", hint)
		return Step{}
	case 1:
		return found[0].decode(d, n, path)
	}
	d.at(n.pos, path, fmt.Sprintf("is both %s and %s", found[0].key, found[1].key), "make two steps of it")
	return Step{}
}

// normaliseSteps copies the list, and the instructions in it, before they are
// changed.
func normaliseSteps(steps []Step) []Step {
	steps = nonEmpty(steps)
	for i, s := range steps {
		switch {
		case s.instruction() == nil:
			continue
		case s.Job != nil:
			job := *s.Job
			steps[i].Job = &job
		case s.Lock != nil:
			block := *s.Lock
			steps[i].Lock = &block
		}
		steps[i].instruction().normalise()
	}
	return steps
}

// scope is what surrounds a step.
type scope struct {
	workflow *Workflow
	// jobs holds the path of each job name seen so far; shared by all scopes of
	// a workflow.
	jobs map[string]string
	// held maps the locks of the enclosing blocks to the block's path.
	held map[string]string
	// depth counts the enclosing blocks.
	depth int
}

// maxBlockDepth bounds how deeply blocks are nested. It is below what maxDepth
// allows a text, so that the normal form of every valid workflow can be read.
const maxBlockDepth = 20

func validateSteps(v *validation, path string, steps []Step, in *scope) {
	if in.depth > maxBlockDepth {
		v.add(path, fmt.Sprintf("blocks are nested deeper than %d levels", maxBlockDepth), "")
		return
	}
	for i, s := range steps {
		at := element(path, i)
		if inst := s.instruction(); inst != nil {
			inst.validate(v, at, in)
		} else {
			v.add(at, "must be exactly one instruction", "one of: "+strings.Join(stepKeys(), ", "))
		}
	}
}

func stepReferences(steps []Step, path string, add func(Kind, string, string)) {
	for i, s := range steps {
		if inst := s.instruction(); inst != nil {
			inst.references(element(path, i), add)
		}
	}
}
