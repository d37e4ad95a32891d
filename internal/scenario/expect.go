package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// expectStep compares; its checks stand in the file's order.
type expectStep struct{ checks []check }

// check is one part of an expectation.
type check struct {
	what     string
	line     int
	expected any
	// observe returns what is seen and whether it is what is expected.
	observe func(ctx context.Context, r *runner) (observed any, ok bool, err error)
}

// do notes every comparison. An observation that the product refuses, such as
// one of an unknown order, is a mismatch.
func (s *expectStep) do(ctx context.Context, r *runner) error {
	for _, c := range s.checks {
		observed, ok, err := c.observe(ctx, r)
		var refusal Refusal
		if errors.As(err, &refusal) {
			observed, ok, err = refusal.RefusalCode(), false, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		r.compareAt(c.line, c.what, c.expected, observed, ok)
	}
	return nil
}

func (r *runner) compare(what string, expected, observed any, ok bool) {
	r.compareAt(r.step.Line, what, expected, observed, ok)
}

func (r *runner) compareAt(line int, what string, expected, observed any, ok bool) {
	r.result.Comparisons = append(r.result.Comparisons, Comparison{
		Line: line, What: what, Expected: expected, Observed: observed, OK: ok,
	})
}

// since returns what the log holds beyond the mark and moves the mark.
func since(log []Start, seen int) ([]Start, int, error) {
	if len(log) < seen {
		return nil, seen, fmt.Errorf("the log has %d entries and had %d", len(log), seen)
	}
	return log[seen:], len(log), nil
}

func startedCheck(line int, want picks) check {
	return check{"started", line, want.labels(), func(ctx context.Context, r *runner) (any, bool, error) {
		log, err := r.world.Started(ctx)
		if err != nil {
			return nil, false, err
		}
		got, seen, err := since(log, r.startsSeen)
		r.startsSeen = seen
		return want.like(got), want.matches(got), err
	}}
}

func grantedCheck(line int, lock string, want picks) check {
	return check{"granted " + lock, line, want.labels(), func(ctx context.Context, r *runner) (any, bool, error) {
		log, err := r.world.Granted(ctx, lock)
		if err != nil {
			return nil, false, err
		}
		got, seen, err := since(log, r.grantsSeen[lock])
		r.grantsSeen[lock] = seen
		return want.like(got), want.matches(got), err
	}}
}

// forecastCheck asks for as many picks as are expected: the next ones, not all
// there will ever be. Where none is expected there must be none.
func forecastCheck(line int, resource string, want picks) check {
	return check{"forecast " + resource, line, want.labels(), func(ctx context.Context, r *runner) (any, bool, error) {
		target := Target{Kind: KindAgent, Name: resource}
		if r.locks[resource] {
			target.Kind = KindLock
		}
		got, err := r.world.Forecast(ctx, target, max(len(want), 1))
		return want.like(got), want.matches(got), err
	}}
}

func stateCheck(line int, order string, want State, withReason bool) check {
	show := func(s State) string {
		if withReason && s.Reason != "" {
			return s.Word + " (" + s.Reason + ")"
		}
		return s.Word
	}
	return check{"states " + order, line, show(want), func(ctx context.Context, r *runner) (any, bool, error) {
		got, err := r.world.State(ctx, order)
		ok := got.Word == want.Word && (!withReason || got.Reason == want.Reason)
		return show(got), ok, err
	}}
}

func lineCheck(line int, agent string, want LineMode) check {
	show := func(m LineMode) string {
		if want.Reason != "" && m.Reason != "" {
			return m.Mode + " (" + m.Reason + ")"
		}
		return m.Mode
	}
	return check{"lines " + agent, line, show(want), func(ctx context.Context, r *runner) (any, bool, error) {
		got, err := r.world.Line(ctx, agent)
		ok := got.Mode == want.Mode && (want.Reason == "" || got.Reason == want.Reason)
		return show(got), ok, err
	}}
}

// sequenceCheck compares names in order.
func sequenceCheck(line int, what string, want []string, observe func(ctx context.Context, w World) ([]string, error)) check {
	return check{what, line, want, func(ctx context.Context, r *runner) (any, bool, error) {
		got, err := observe(ctx, r.world)
		return notNil(got), slices.Equal(want, got), err
	}}
}

// setCheck compares names in any order, each once.
func setCheck(line int, what string, want []string, observe func(ctx context.Context, w World) ([]string, error)) check {
	return check{what, line, want, func(ctx context.Context, r *runner) (any, bool, error) {
		got, err := observe(ctx, r.world)
		return notNil(got), slices.Equal(set(want), set(got)), err
	}}
}

func numberCheck(line int, what string, want int64, observe func(ctx context.Context, w World) (int64, error)) check {
	return check{what, line, want, func(ctx context.Context, r *runner) (any, bool, error) {
		got, err := observe(ctx, r.world)
		return got, got == want, err
	}}
}

func readyWaitCheck(line int, order string, want time.Duration) check {
	return check{"ready_wait " + order, line, want.String(), func(ctx context.Context, r *runner) (any, bool, error) {
		got, started, err := r.world.ReadyWait(ctx, order)
		if err == nil && !started {
			return "not started", false, nil
		}
		return got.String(), got == want, err
	}}
}

func set(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func notNil(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}
