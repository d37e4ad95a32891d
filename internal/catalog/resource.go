package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// resource is what locks and agents have in common.
type resource struct {
	kind, name string
	agentType  *string
	processes  *int
	maxBlocked *int
	director   *string
	capacity   *int
	queues     []string
	members    []definition.Member
}

func (a *application) lock(ctx context.Context, l definition.Lock) (Change, error) {
	return a.resource(ctx, resource{kind: "lock", name: l.Name, capacity: &l.Capacity, queues: l.Queues})
}

func (a *application) agent(ctx context.Context, d definition.Agent) (Change, error) {
	agentType := string(d.Type)
	r := resource{
		kind: "agent", name: d.Name, agentType: &agentType, processes: d.Processes, maxBlocked: d.MaxBlocked,
		queues: d.Queues, members: d.Members,
	}
	if d.Director != "" {
		r.director = &d.Director
	}
	return a.resource(ctx, r)
}

// resource applies a lock or an agent. The row is locked first, so that no pick
// is under way; a raised limit is used at once, a lowered one revokes nothing.
func (a *application) resource(ctx context.Context, r resource) (Change, error) {
	current, id, revision, removed, err := a.current(ctx, r.kind, r.name)
	if err != nil {
		return Change{}, err
	}
	if id != 0 && !removed && same(current, r) {
		return Change{Action: Unchanged, Revision: revision}, nil
	}
	err = a.row(ctx, `
		INSERT INTO siding.resources (kind, name, agent_type, processes, max_blocked, director_id, capacity, updated_at)
		VALUES ($1, $2, $3, $4, $5, (SELECT resource_id FROM siding.resources WHERE kind = 'agent' AND name = $6), $7, siding.clock())
		ON CONFLICT (kind, name) DO UPDATE
		SET agent_type = excluded.agent_type, processes = excluded.processes, max_blocked = excluded.max_blocked,
		    director_id = excluded.director_id, capacity = excluded.capacity, updated_at = excluded.updated_at,
		    revision = resources.revision + 1, removed_at = NULL
		RETURNING resource_id, revision`,
		r.kind, r.name, r.agentType, r.processes, r.maxBlocked, r.director, r.capacity).Scan(&id, &revision)
	if err != nil {
		return Change{}, fmt.Errorf("write: %w", err)
	}
	_, err = a.exec(ctx, `INSERT INTO siding.lines (line_id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
	if err != nil {
		return Change{}, fmt.Errorf("write line: %w", err)
	}
	if r.kind == "agent" {
		_, err = a.exec(ctx, `INSERT INTO siding.streams (line_id, class_id, queue_id) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING`, id)
		if err != nil {
			return Change{}, fmt.Errorf("write stream: %w", err)
		}
	}
	if err := a.lists(ctx, id, r); err != nil {
		return Change{}, err
	}
	if err := a.rebook(ctx, id); err != nil {
		return Change{}, err
	}
	action := Changed
	if current == nil || removed {
		action = Created
	}
	return Change{Action: action, Revision: revision}, nil
}

// lists replaces the queues and the members.
func (a *application) lists(ctx context.Context, id int32, r resource) error {
	if _, err := a.exec(ctx, `DELETE FROM siding.resource_queues WHERE resource_id = $1`, id); err != nil {
		return fmt.Errorf("write queues: %w", err)
	}
	_, err := a.exec(ctx, `
		INSERT INTO siding.resource_queues (resource_id, rank, queue_id)
		SELECT $1, l.rank, q.queue_id FROM unnest($2::text[]) WITH ORDINALITY AS l (name, rank) JOIN siding.queues q ON q.name = l.name`,
		id, append([]string{}, r.queues...))
	if err != nil {
		return fmt.Errorf("write queues: %w", err)
	}
	if _, err := a.exec(ctx, `DELETE FROM siding.cluster_members WHERE cluster_id = $1`, id); err != nil {
		return fmt.Errorf("write members: %w", err)
	}
	for _, m := range r.members {
		_, err := a.exec(ctx, `
			INSERT INTO siding.cluster_members (cluster_id, agent_id, priority)
			SELECT $1, resource_id, $3 FROM siding.resources WHERE kind = 'agent' AND name = $2`, id, m.Agent, m.Priority)
		if err != nil {
			return fmt.Errorf("write members: %w", err)
		}
	}
	return nil
}

// current reads a resource as it stands and locks it; nil if it never existed.
func (a *application) current(ctx context.Context, kind, name string) (*resource, int32, int, bool, error) {
	r := &resource{kind: kind, name: name}
	var (
		id       int32
		revision int
		removed  bool
	)
	err := a.row(ctx, `
		SELECT r.resource_id, r.revision, r.removed_at IS NOT NULL, r.agent_type, r.processes, r.max_blocked,
		       (SELECT d.name FROM siding.resources d WHERE d.resource_id = r.director_id), r.capacity
		FROM siding.resources r WHERE r.kind = $1 AND r.name = $2 FOR UPDATE`, kind, name).
		Scan(&id, &revision, &removed, &r.agentType, &r.processes, &r.maxBlocked, &r.director, &r.capacity)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, 0, 0, false, nil
	}
	if err != nil {
		return nil, 0, 0, false, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT q.name FROM siding.resource_queues l JOIN siding.queues q ON q.queue_id = l.queue_id
		WHERE l.resource_id = $1 ORDER BY l.rank`), id)
	if err != nil {
		return nil, 0, 0, false, fmt.Errorf("read queues: %w", err)
	}
	if r.queues, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, 0, 0, false, fmt.Errorf("read queues: %w", err)
	}
	rows, err = a.tx.Query(ctx, a.db.SQL(`
		SELECT r.name, m.priority FROM siding.cluster_members m JOIN siding.resources r ON r.resource_id = m.agent_id
		WHERE m.cluster_id = $1 ORDER BY r.name`), id)
	if err != nil {
		return nil, 0, 0, false, fmt.Errorf("read members: %w", err)
	}
	r.members, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m definition.Member, err error) {
		return m, row.Scan(&m.Agent, &m.Priority)
	})
	if err != nil {
		return nil, 0, 0, false, fmt.Errorf("read members: %w", err)
	}
	return r, id, revision, removed, nil
}

func same(x *resource, y resource) bool {
	members := slices.Clone(y.members)
	slices.SortFunc(members, func(a, b definition.Member) int {
		if a.Agent < b.Agent {
			return -1
		}
		return 1
	})
	return equal(x.agentType, y.agentType) && equal(x.processes, y.processes) && equal(x.maxBlocked, y.maxBlocked) &&
		equal(x.director, y.director) && equal(x.capacity, y.capacity) &&
		slices.Equal(x.queues, y.queues) && slices.Equal(x.members, members)
}

// deleteResource removes a lock or an agent that nothing needs.
func (a *application) deleteResource(ctx context.Context, kind, name string) error {
	current, id, _, removed, err := a.current(ctx, kind, name)
	if err != nil {
		return err
	}
	if current == nil || removed {
		return db.Refuse("unknown_"+kind, 404, "there is no %s %s", kind, name)
	}
	code := kind + "_in_use"
	err = a.refuseLive(ctx, code, kind+" "+name+" is needed by", `
		SELECT o.id FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id
		WHERE s.version_id IN (
			SELECT version_id FROM siding.steps WHERE line_id = $1
			UNION SELECT version_id FROM siding.lock_needs WHERE lock_id = $1)
		LIMIT 1001`, id)
	if err != nil {
		return err
	}
	var user *string
	err = a.row(ctx, `
		SELECT min(used_by) FROM (
			SELECT 'workflow ' || w.name AS used_by FROM siding.workflows w
			WHERE w.removed_at IS NULL AND w.current_version_id IN (
				SELECT version_id FROM siding.steps WHERE line_id = $1
				UNION SELECT version_id FROM siding.lock_needs WHERE lock_id = $1)
			UNION ALL
			SELECT 'cluster ' || c.name FROM siding.resources c
			WHERE c.removed_at IS NULL AND (c.director_id = $1
			      OR c.resource_id IN (SELECT cluster_id FROM siding.cluster_members WHERE agent_id = $1))) u`, id).Scan(&user)
	if err != nil {
		return err
	}
	if user != nil {
		r := db.Refuse(code, 409, "%s %s is used by %s", kind, name, *user)
		r.Hint = "Change or remove that first."
		return r
	}
	_, err = a.exec(ctx, `UPDATE siding.resources SET removed_at = siding.clock(), revision = revision + 1 WHERE resource_id = $1`, id)
	if err != nil {
		return err
	}
	_, err = a.exec(ctx, `DELETE FROM siding.resource_queues WHERE resource_id = $1`, id)
	return err
}
