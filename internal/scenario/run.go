package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// runner is one run of one scenario.
type runner struct {
	world  World
	result *Result
	// agents that claim, in the order of the file; clusters have no session.
	agents []string
	locks  map[string]bool
	// added counts orders and jobs the most jobs of a workflow, which bounds how
	// often run can start something.
	added, jobs int
	// step is the one being done.
	step Step
	// startsSeen and grantsSeen are what expectations have consumed.
	startsSeen int
	grantsSeen map[string]int
}

// Run does the steps of the scenario on an empty world and compares. What the
// product refuses unexpectedly ends the scenario, which is then failed with the
// step and the code in the result. An error means that the world or the context
// broke; the result still tells how far the run came.
func Run(ctx context.Context, s *Scenario, w World) (*Result, error) {
	r := &runner{
		world:      w,
		result:     &Result{File: s.File, Title: s.Title, Steps: len(s.Steps), Comparisons: []Comparison{}},
		locks:      map[string]bool{},
		grantsSeen: map[string]int{},
	}
	err := r.all(ctx, s)
	if err == nil && r.result.Failure == nil {
		err = r.readStarts(ctx)
	}
	if err != nil && r.result.Failure == nil {
		r.result.Failure = &Failure{Line: r.step.Line, Step: r.step.Word, Message: err.Error()}
	}
	r.result.judge()
	if err != nil {
		return r.result, fmt.Errorf("scenario %s: %w", s.File, err)
	}
	return r.result, nil
}

func (r *runner) all(ctx context.Context, s *Scenario) error {
	if len(s.Definitions) > 0 {
		if err := r.world.ApplyDefinitions(ctx, s.Definitions); err != nil {
			step := Step{Line: s.Definitions[0].Line, Word: "definitions"}
			var document *DocumentError
			if errors.As(err, &document) && document.Index >= 0 && document.Index < len(s.Definitions) {
				doc := s.Definitions[document.Index]
				step = Step{Line: doc.Line, Word: string(doc.Kind) + " " + doc.Name}
			}
			return r.failed(step, err)
		}
		for _, doc := range s.Definitions {
			r.defined(doc)
		}
		if err := r.world.Settle(ctx); err != nil {
			return r.failed(Step{Word: "definitions"}, err)
		}
	}
	for _, step := range s.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.step = step
		if err := step.action.do(ctx, r); err != nil {
			return r.failed(step, err)
		}
		if err := r.world.Settle(ctx); err != nil {
			return r.failed(step, fmt.Errorf("settle: %w", err))
		}
	}
	return nil
}

// failed notes what ended the scenario and passes on what isn't a refusal.
func (r *runner) failed(step Step, err error) error {
	r.result.Failure = &Failure{Line: step.Line, Step: step.Word, Message: err.Error()}
	var refusal Refusal
	if errors.As(err, &refusal) {
		r.result.Failure.Code = refusal.RefusalCode()
		return nil
	}
	var misuse *misuseError
	if errors.As(err, &misuse) {
		return nil
	}
	return fmt.Errorf("line %d: %s: %w", step.Line, step.Word, err)
}

// misuseError is a mistake that only shows while the scenario runs, or a run
// that doesn't end: the scenario failed, the world isn't broken.
type misuseError struct{ message string }

func (e *misuseError) Error() string { return e.message }

// defined keeps the runner's own knowledge of agents and locks.
func (r *runner) defined(doc Document) {
	switch doc.Kind {
	case KindLock:
		r.locks[doc.Name] = true
	case KindAgent:
		known := slices.Contains(r.agents, doc.Name)
		if doc.AgentType == "cluster" {
			r.removed(doc.Target)
		} else if !known {
			r.agents = append(r.agents, doc.Name)
		}
	case KindWorkflow:
		r.jobs = max(r.jobs, doc.Jobs)
	}
}

func (r *runner) removed(target Target) {
	switch target.Kind {
	case KindLock:
		delete(r.locks, target.Name)
	case KindAgent:
		r.agents = slices.DeleteFunc(r.agents, func(name string) bool { return name == target.Name })
	}
}

type claimStep struct {
	agent string
	// slots is 0 for all free processes.
	slots int
}

func (s *claimStep) do(ctx context.Context, r *runner) error {
	slots := s.slots
	if slots == 0 {
		free, err := r.world.FreeProcesses(ctx, s.agent)
		if err != nil {
			return err
		}
		slots = free
	}
	if slots <= 0 {
		return nil
	}
	_, err := r.claim(ctx, s.agent, slots)
	return err
}

// claim checks what no agent may see: more than it asked for.
func (r *runner) claim(ctx context.Context, agent string, slots int) ([]Start, error) {
	got, err := r.world.Claim(ctx, agent, slots)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", agent, err)
	}
	if len(got) > slots {
		return nil, &misuseError{fmt.Sprintf("agent %s asked for %d orders and was given %d", agent, slots, len(got))}
	}
	return got, nil
}

type runStep struct {
	// starts is after how many starts it stops, 0 for until idle.
	starts int
}

// do repeats: every agent claims into its free processes, then the order that
// started first among the running ones finishes. No attempt fails here and the
// clock stands still, so an order starts at most once for each of its jobs;
// what goes on beyond that would go on for ever.
func (s *runStep) do(ctx context.Context, r *runner) error {
	already, err := r.world.Running(ctx)
	if err != nil {
		return err
	}
	bound := r.added*max(r.jobs, 1) + len(already)
	started, finished := 0, 0
	var last []string
	for {
		claimed := 0
		for _, agent := range r.agents {
			slots, err := r.world.FreeProcesses(ctx, agent)
			if err != nil {
				return err
			}
			if s.starts > 0 {
				slots = min(slots, s.starts-started)
			}
			if slots <= 0 {
				continue
			}
			got, err := r.claim(ctx, agent, slots)
			if err != nil {
				return err
			}
			for _, start := range got {
				last = append(last, start.Order)
			}
			last = last[max(0, len(last)-10):]
			claimed += len(got)
			started += len(got)
			if err := r.world.Settle(ctx); err != nil {
				return fmt.Errorf("settle after a claim: %w", err)
			}
			if s.starts > 0 && started >= s.starts {
				return nil
			}
		}
		running, err := r.world.Running(ctx)
		if err != nil {
			return err
		}
		if len(running) == 0 && claimed == 0 {
			return nil
		}
		if started > bound || finished > bound {
			return &misuseError{fmt.Sprintf("run does not come to an end: after %d starts and %d ends, more than the orders have jobs, "+
				"there is still something to do; the last starts were %s", started, finished, strings.Join(last, ", "))}
		}
		if len(running) == 0 {
			continue
		}
		if err := r.world.Finish(ctx, running[0]); err != nil {
			return &aboutError{"finishing " + running[0], err}
		}
		finished++
		if err := r.world.Settle(ctx); err != nil {
			return fmt.Errorf("settle after %s finished: %w", running[0], err)
		}
	}
}

type refusedStep struct {
	inner Step
	code  string
}

// do compares rather than fails: an inner step that goes through, another code,
// or a change left behind are what the table must show.
func (s *refusedStep) do(ctx context.Context, r *runner) error {
	before, err := r.world.Fingerprint(ctx)
	if err != nil {
		return err
	}
	observed := "not refused"
	if err := s.inner.action.do(ctx, r); err != nil {
		var refusal Refusal
		if !errors.As(err, &refusal) {
			return fmt.Errorf("%s: %w", s.inner.Word, err)
		}
		observed = refusal.RefusalCode()
		if err := r.world.Settle(ctx); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		after, err := r.world.Fingerprint(ctx)
		if err != nil {
			return err
		}
		if after != before {
			observed += ", but something changed"
		}
	}
	r.compare("refused "+s.inner.Word, s.code, observed, observed == s.code)
	return nil
}

// readStarts keeps all starts, for scenarios that ask a question rather than
// expect an answer.
func (r *runner) readStarts(ctx context.Context) error {
	starts, err := r.world.Started(ctx)
	if err != nil {
		return err
	}
	for _, s := range starts {
		r.result.Started = append(r.result.Started, s.Order)
	}
	return nil
}
