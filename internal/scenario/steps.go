package scenario

import (
	"context"
	"time"
)

// The steps that pass one thing on to the World. Those with rules of the
// runner's own (claim, run, refused, expect) stand in run.go and expect.go.

type addStep struct{ orders []NewOrder }

func (s *addStep) do(ctx context.Context, r *runner) error {
	if err := r.world.Add(ctx, s.orders); err != nil {
		return err
	}
	r.added += len(s.orders)
	return nil
}

// operation is done to one order, or to one agent.
type operation func(w World, ctx context.Context, name string) error

func withReason(do func(w World, ctx context.Context, name, reason string) error) operation {
	return func(w World, ctx context.Context, name string) error { return do(w, ctx, name, defaultReason) }
}

type operationStep struct {
	names     []string
	operation operation
}

func (s *operationStep) do(ctx context.Context, r *runner) error {
	for _, name := range s.names {
		if err := s.operation(r.world, ctx, name); err != nil {
			return &aboutError{name, err}
		}
	}
	return nil
}

type uploadStep struct{ upload Upload }

func (s *uploadStep) do(ctx context.Context, r *runner) error { return r.world.Upload(ctx, s.upload) }

type completeStep struct{ order, attachment string }

func (s *completeStep) do(ctx context.Context, r *runner) error {
	return r.world.Complete(ctx, s.order, s.attachment)
}

type attachStep struct {
	order      string
	attachment NewAttachment
}

func (s *attachStep) do(ctx context.Context, r *runner) error {
	return r.world.Attach(ctx, s.order, s.attachment)
}

type discardStep struct{ order, attachment, reason string }

func (s *discardStep) do(ctx context.Context, r *runner) error {
	return r.world.Discard(ctx, s.order, s.attachment, s.reason)
}

type storeStep struct{ readable bool }

func (s *storeStep) do(ctx context.Context, r *runner) error {
	return r.world.SetStoreReadable(ctx, s.readable)
}

type advanceStep struct{ by time.Duration }

func (s *advanceStep) do(ctx context.Context, r *runner) error { return r.world.Advance(ctx, s.by) }

type moveStep struct{ move Move }

func (s *moveStep) do(ctx context.Context, r *runner) error { return r.world.Move(ctx, s.move) }

type assignStep struct{ order, queue string }

func (s *assignStep) do(ctx context.Context, r *runner) error {
	return r.world.Assign(ctx, s.order, s.queue)
}

type releaseStep struct{ order, reason string }

func (s *releaseStep) do(ctx context.Context, r *runner) error {
	return r.world.Release(ctx, s.order, s.reason)
}

type resolveStep struct{ resolution Resolution }

func (s *resolveStep) do(ctx context.Context, r *runner) error {
	return r.world.Resolve(ctx, s.resolution)
}

type lineStep struct{ agent, mode, reason string }

func (s *lineStep) do(ctx context.Context, r *runner) error {
	return r.world.SetLineMode(ctx, s.agent, s.mode, s.reason)
}

type pauseStep struct{ pause Pause }

func (s *pauseStep) do(ctx context.Context, r *runner) error { return r.world.Pause(ctx, s.pause) }

type unpauseStep struct{ target Target }

func (s *unpauseStep) do(ctx context.Context, r *runner) error {
	return r.world.Unpause(ctx, s.target)
}

type applyStep struct{ doc Document }

func (s *applyStep) do(ctx context.Context, r *runner) error {
	if err := r.world.ApplyDefinitions(ctx, []Document{s.doc}); err != nil {
		return err
	}
	r.defined(s.doc)
	return nil
}

type deleteStep struct{ target Target }

func (s *deleteStep) do(ctx context.Context, r *runner) error {
	if err := r.world.DeleteDefinition(ctx, s.target); err != nil {
		return err
	}
	r.removed(s.target)
	return nil
}

// aboutError says which of several names an operation failed on.
type aboutError struct {
	name string
	err  error
}

func (e *aboutError) Error() string { return e.name + ": " + e.err.Error() }
func (e *aboutError) Unwrap() error { return e.err }
