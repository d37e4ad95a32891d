package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// workflow applies a workflow: other content makes a new version. Live orders
// keep theirs.
func (a *application) workflow(ctx context.Context, doc definition.Document) (Change, error) {
	w := *doc.Workflow
	normal, err := doc.Normal()
	if err != nil {
		return Change{}, err
	}
	var (
		id       int32
		revision int
		removed  bool
		isSame   bool
		version  int
	)
	err = a.row(ctx, `
		SELECT w.workflow_id, w.revision, w.removed_at IS NOT NULL, v.definition = $2::jsonb,
		       (SELECT max(version) FROM siding.workflow_versions x WHERE x.workflow_id = w.workflow_id)
		FROM siding.workflows w JOIN siding.workflow_versions v ON v.version_id = w.current_version_id
		WHERE w.name = $1`, w.Name, string(normal)).Scan(&id, &revision, &removed, &isSame, &version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = a.row(ctx, `INSERT INTO siding.workflows (name, updated_at) VALUES ($1, siding.clock()) RETURNING workflow_id`, w.Name).Scan(&id)
		if err != nil {
			return Change{}, err
		}
		if err := a.version(ctx, id, 1, w, normal); err != nil {
			return Change{}, err
		}
		return Change{Action: Created, Revision: 1, Version: 1}, nil
	case err != nil:
		return Change{}, err
	case isSame && !removed:
		return Change{Action: Unchanged, Revision: revision, Version: version}, nil
	}
	action := Changed
	if removed {
		action = Created
	}
	if !isSame {
		version++
		if err := a.version(ctx, id, version, w, normal); err != nil {
			return Change{}, err
		}
	}
	_, err = a.exec(ctx, `UPDATE siding.workflows SET revision = revision + 1, updated_at = siding.clock(), removed_at = NULL WHERE workflow_id = $1`, id)
	return Change{Action: action, Revision: revision + 1, Version: version}, err
}

// version writes a version with its steps and makes it the current one.
func (a *application) version(ctx context.Context, workflow int32, number int, w definition.Workflow, normal []byte) error {
	steps, err := definition.Flatten(w)
	if err != nil {
		return err
	}
	space := w.KeySpace
	if space == "" {
		space = w.Name
	}
	var spaceID int32
	err = a.row(ctx, `
		INSERT INTO siding.key_spaces (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING key_space_id`,
		space).Scan(&spaceID)
	if err != nil {
		return fmt.Errorf("key space: %w", err)
	}
	attachments, err := json.Marshal(append([]definition.Attachment{}, w.Attachments...))
	if err != nil {
		return err
	}
	var template *string
	if w.Ordering.Kind == definition.KeyTemplate {
		template = &w.Ordering.Template
	}
	var limit *int64
	if w.WaitLimit != nil {
		ms := w.WaitLimit.Std().Milliseconds()
		limit = &ms
	}
	var version int32
	err = a.row(ctx, `
		INSERT INTO siding.workflow_versions (workflow_id, version, definition, ordering, key_template, key_space_id, wait_limit, attachments, created_at, created_by)
		VALUES ($1, $2, $3::jsonb, $4, $5, $6, $7::bigint * interval '1 millisecond', $8::jsonb, siding.clock(), $9) RETURNING version_id`,
		workflow, number, string(normal), string(w.Ordering.Kind), template, spaceID, limit, string(attachments), a.person).Scan(&version)
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	// Own limits of jobs are those of the newest version.
	if _, err := a.exec(ctx, `UPDATE siding.job_classes SET processes = NULL WHERE workflow_id = $1`, workflow); err != nil {
		return fmt.Errorf("job limits: %w", err)
	}
	var next, first *int32
	for i := len(steps) - 1; i >= 0; i-- {
		id, err := a.step(ctx, workflow, version, steps[i], next)
		if err != nil {
			return fmt.Errorf("step %s: %w", steps[i].Path, err)
		}
		next, first = &id, &id
	}
	if err := a.lockBlocks(ctx, version, steps); err != nil {
		return err
	}
	_, err = a.exec(ctx, `UPDATE siding.workflow_versions SET first_step_id = $2 WHERE version_id = $1`, version, first)
	if err != nil {
		return fmt.Errorf("first step: %w", err)
	}
	_, err = a.exec(ctx, `UPDATE siding.workflows SET current_version_id = $2 WHERE workflow_id = $1`, workflow, version)
	if err != nil {
		return fmt.Errorf("current version: %w", err)
	}
	return nil
}

// step writes one job step.
func (a *application) step(ctx context.Context, workflow, version int32, s definition.FlatStep, next *int32) (int32, error) {
	class := int32(0)
	if s.Processes != nil {
		err := a.row(ctx, `
			INSERT INTO siding.job_classes (workflow_id, job, processes) VALUES ($1, $2, $3)
			ON CONFLICT (workflow_id, job) DO UPDATE SET processes = excluded.processes RETURNING class_id`,
			workflow, s.Job, *s.Processes).Scan(&class)
		if err != nil {
			return 0, fmt.Errorf("job limit: %w", err)
		}
	}
	var spec *string
	if !s.Noop {
		text, err := json.Marshal(protocol.Job{
			Name: s.Job, Script: s.Run, Argv: s.Argv, Env: s.Env, SuccessCodes: s.SuccessCodes, TimeoutMillis: s.Timeout.Milliseconds(),
		})
		if err != nil {
			return 0, err
		}
		job := string(text)
		spec = &job
	}
	var lockPath *string
	if len(s.Locks) > 0 {
		lockPath = &s.Locks[len(s.Locks)-1].Path
	}
	var id, line int32
	err := a.row(ctx, `
		INSERT INTO siding.steps (version_id, step_path, next_step_id, line_id, class_id, job, max_attempts, backoff_first, backoff_max,
		                          timeout_ms, on_lost, job_spec, lock_path)
		SELECT $1, $2, $3, resource_id, $4, $5, $6, $7::bigint * interval '1 millisecond', $8::bigint * interval '1 millisecond', $9, $10, $11::jsonb, $12
		FROM siding.resources WHERE kind = 'agent' AND name = $13
		RETURNING step_id, line_id`,
		version, s.Path, next, class, s.Job, s.MaxAttempts, s.BackoffFirst.Milliseconds(), s.BackoffMax.Milliseconds(),
		s.Timeout.Milliseconds(), string(s.OnLost), spec, lockPath, s.Agent).Scan(&id, &line)
	if err != nil {
		return 0, err
	}
	_, err = a.exec(ctx, `INSERT INTO siding.streams (line_id, class_id, queue_id) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`, line, class)
	return id, err
}

// lockBlocks writes the lock blocks that occur around steps.
func (a *application) lockBlocks(ctx context.Context, version int32, steps []definition.FlatStep) error {
	done := map[string]bool{}
	for _, s := range steps {
		for i, block := range s.Locks {
			if done[block.Path] {
				continue
			}
			done[block.Path] = true
			var parent *string
			if i > 0 {
				parent = &s.Locks[i-1].Path
			}
			_, err := a.exec(ctx, `
				INSERT INTO siding.lock_blocks (version_id, block_path, parent_path, first_step_id, resume_at)
				SELECT $1, $2, $3, step_id, $5 FROM siding.steps WHERE version_id = $1 AND step_path = $4`,
				version, block.Path, parent, s.Path, string(block.ResumeAt))
			if err != nil {
				return fmt.Errorf("lock block %s: %w", block.Path, err)
			}
			for _, l := range block.Locks {
				var weight *int
				if !l.Exclusive {
					weight = &l.Weight
				}
				_, err := a.exec(ctx, `
					INSERT INTO siding.lock_needs (version_id, block_path, lock_id, weight)
					SELECT $1, $2, resource_id, $4 FROM siding.resources WHERE kind = 'lock' AND name = $3`,
					version, block.Path, l.Lock, weight)
				if err != nil {
					return fmt.Errorf("lock block %s: %w", block.Path, err)
				}
			}
		}
	}
	return nil
}

// deleteWorkflow removes a workflow that has no live orders.
func (a *application) deleteWorkflow(ctx context.Context, name string) error {
	var id int32
	err := a.row(ctx, `SELECT workflow_id FROM siding.workflows WHERE name = $1 AND removed_at IS NULL FOR UPDATE`, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return db.Refuse("unknown_workflow", 404, "there is no workflow %s", name)
	}
	if err != nil {
		return err
	}
	err = a.refuseLive(ctx, "workflow_in_use", "workflow "+name+" has", `
		SELECT o.id FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
		JOIN siding.workflow_versions v ON v.version_id = s.version_id WHERE v.workflow_id = $1 LIMIT 1001`, id)
	if err != nil {
		return err
	}
	_, err = a.exec(ctx, `UPDATE siding.workflows SET removed_at = siding.clock(), revision = revision + 1 WHERE workflow_id = $1`, id)
	return err
}
