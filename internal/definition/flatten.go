package definition

import (
	"fmt"
	"strconv"
	"time"
)

// FlatStep is a job step with everything that decides how it runs, as the
// catalog stores it.
type FlatStep struct {
	// Path is the place of the step, counted from 1 and joined by dots: "2.1" is the
	// first step of the block that is the second step of the workflow.
	Path string
	// Next is the path of the step that follows when this one is done, "" at the
	// end of the workflow.
	Next  string
	Job   string
	Agent string
	// MaxAttempts and the two bounds of the backoff are those of docs/concepts.md,
	// "Failure, retries, dead", with all defaults filled in.
	MaxAttempts  int
	BackoffFirst time.Duration
	BackoffMax   time.Duration
	// Timeout of one attempt; 0 means none.
	Timeout time.Duration
	OnLost  OnLost
	// Processes is the job's own process limit; nil means none.
	Processes *int
	// Locks are the lock blocks the step stands in, the outermost first.
	Locks []LockScope
	// Run, Argv and Noop say what runs; exactly one is set.
	Run          string
	Argv         []string
	Noop         bool
	Env          map[string]string
	SuccessCodes []int
}

// LockScope is a lock block around a step.
type LockScope struct {
	// Path of the block, as in FlatStep.
	Path string
	// Locks are sorted by name.
	Locks    LockRequests
	ResumeAt ResumeAt
}

// Flatten lists the job steps of a valid workflow in the order in which they
// are executed. It fails for a job without an agent and for a step that is no
// instruction; Parse and Validate refuse both.
func Flatten(w Workflow) ([]FlatStep, error) {
	f := &flattening{workflow: w}
	if err := f.sequence(w.Steps, ""); err != nil {
		return nil, fmt.Errorf("flatten workflow %s: %w", w.Name, err)
	}
	for i := range len(f.steps) - 1 {
		f.steps[i].Next = f.steps[i+1].Path
	}
	return f.steps, nil
}

// flattening collects steps.
type flattening struct {
	workflow Workflow
	locks    []LockScope
	steps    []FlatStep
}

func (f *flattening) sequence(steps []Step, prefix string) error {
	for i, s := range steps {
		path := prefix + strconv.Itoa(i+1)
		inst := s.instruction()
		if inst == nil {
			return fmt.Errorf("step %s is not exactly one instruction", path)
		}
		if err := inst.flatten(f, path); err != nil {
			return fmt.Errorf("step %s: %w", path, err)
		}
	}
	return nil
}
