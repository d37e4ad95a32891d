package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// check refuses documents that refer to what isn't there, twice the same name,
// and lock steps that could wait for each other.
func (a *application) check(ctx context.Context, docs []definition.Document) error {
	world, err := a.world(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var problems definition.Errors
	for _, doc := range docs {
		id := string(doc.Kind) + "/" + doc.Name()
		if seen[id] {
			problems.Problems = append(problems.Problems,
				doc.Problem("name", "invalid_definition", fmt.Sprintf("%s %s is defined twice in one call", doc.Kind, doc.Name()), "Leave one of the two out."))
		}
		seen[id] = true
		world.Add(doc)
	}
	for _, doc := range docs {
		var found *definition.Errors
		if err := definition.CheckAgainst(doc, world); errors.As(err, &found) {
			problems.Problems = append(problems.Problems, found.Problems...)
		} else if err != nil {
			return err
		}
	}
	if err := a.checkTypes(ctx, docs, &problems); err != nil {
		return err
	}
	if err := a.checkLockCycle(ctx, docs, &problems); err != nil {
		return err
	}
	if len(problems.Problems) > 0 {
		return &problems
	}
	return nil
}

// world is what exists already.
func (a *application) world(ctx context.Context) (definition.World, error) {
	world := definition.World{Queues: map[string]bool{}, Locks: map[string]int{}, Agents: map[string]definition.AgentType{}}
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT 'queue', name, 0, '' FROM siding.queues WHERE removed_at IS NULL
		UNION ALL
		SELECT kind, name, coalesce(capacity, 0), coalesce(agent_type, '') FROM siding.resources WHERE removed_at IS NULL`))
	if err != nil {
		return world, fmt.Errorf("read definitions: %w", err)
	}
	var kind, name, agentType string
	var capacity int
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &capacity, &agentType}, func() error {
		switch kind {
		case "queue":
			world.Queues[name] = true
		case "lock":
			world.Locks[name] = capacity
		case "agent":
			world.Agents[name] = definition.AgentType(agentType)
		}
		return nil
	})
	if err != nil {
		return world, fmt.Errorf("read definitions: %w", err)
	}
	return world, nil
}

// checkTypes refuses types of agents that clusters, other than those that docs
// replace, can't use.
func (a *application) checkTypes(ctx context.Context, docs []definition.Document, problems *definition.Errors) error {
	agents := map[string]definition.Document{}
	var replaced []string
	for _, doc := range docs {
		if doc.Agent != nil {
			agents[doc.Agent.Name] = doc
			replaced = append(replaced, doc.Agent.Name)
		}
	}
	if len(agents) == 0 {
		return nil
	}
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT c.name, x.name, x.resource_id IS NOT DISTINCT FROM c.director_id AS directs
		FROM siding.resources c
		JOIN siding.resources x ON x.resource_id = c.director_id
		     OR EXISTS (SELECT FROM siding.cluster_members m WHERE m.cluster_id = c.resource_id AND m.agent_id = x.resource_id)
		WHERE c.agent_type = 'cluster' AND c.removed_at IS NULL AND c.name <> ALL ($1) AND x.name = ANY ($1)
		ORDER BY c.name, x.name`), replaced)
	if err != nil {
		return fmt.Errorf("read clusters: %w", err)
	}
	var cluster, name string
	var directs bool
	_, err = pgx.ForEachRow(rows, []any{&cluster, &name, &directs}, func() error {
		doc := agents[name]
		switch {
		case directs && doc.Agent.Type != definition.Director:
			problems.Problems = append(problems.Problems, doc.Problem("type", "invalid_definition",
				fmt.Sprintf("%s is the director of cluster %s", name, cluster), "Change the cluster first, or in the same call."))
		case !directs && doc.Agent.Type == definition.Cluster:
			problems.Problems = append(problems.Problems, doc.Problem("type", "invalid_definition",
				fmt.Sprintf("%s is a member of cluster %s, which can't be a cluster", name, cluster), "Change the cluster first, or in the same call."))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read clusters: %w", err)
	}
	return nil
}

// checkLockCycle looks for a cycle in which lock steps of the new workflows,
// of the other current ones and of old versions with live orders could wait
// for each other.
func (a *application) checkLockCycle(ctx context.Context, docs []definition.Document, problems *definition.Errors) error {
	workflows, err := a.lockingWorkflows(ctx, docs)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		if doc.Workflow == nil {
			continue
		}
		workflows = append(workflows, *doc.Workflow)
		if doc.Workflow.AllowCycle {
			continue
		}
		if cycle := definition.LockCycle(workflows); cycle != nil {
			problems.Problems = append(problems.Problems, doc.Problem("steps", "lock_cycle",
				"lock steps could wait for each other for ever: "+strings.Join(cycle, " -> "),
				"Take the locks in one order everywhere, or all in one lock step; allow_cycle: true overrides."))
			return nil
		}
	}
	return nil
}

// lockingWorkflows are the definitions that are in force and take locks, less
// those that docs replace (unless live orders keep an old version).
func (a *application) lockingWorkflows(ctx context.Context, docs []definition.Document) ([]definition.Workflow, error) {
	if !slices.ContainsFunc(docs, func(d definition.Document) bool { return d.Workflow != nil }) {
		return nil, nil
	}
	var replaced []string
	for _, doc := range docs {
		if doc.Workflow != nil {
			replaced = append(replaced, doc.Workflow.Name)
		}
	}
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT v.definition
		FROM siding.workflow_versions v JOIN siding.workflows w ON w.workflow_id = v.workflow_id
		WHERE EXISTS (SELECT FROM siding.lock_blocks b WHERE b.version_id = v.version_id)
		  AND (w.current_version_id = v.version_id AND w.removed_at IS NULL AND w.name <> ALL ($1)
		       OR EXISTS (SELECT FROM siding.orders o JOIN siding.steps s ON s.step_id = o.step_id WHERE s.version_id = v.version_id))`), replaced)
	if err != nil {
		return nil, fmt.Errorf("read workflows: %w", err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, fmt.Errorf("read workflows: %w", err)
	}
	var workflows []definition.Workflow
	for _, text := range texts {
		doc, err := definition.Load(definition.KindWorkflow, text)
		if err != nil {
			return nil, err
		}
		if !doc.Workflow.AllowCycle {
			workflows = append(workflows, *doc.Workflow)
		}
	}
	return workflows, nil
}

// revisions of the kinds, by name.
var revisionOf = map[definition.Kind]string{
	definition.KindQueue:    `SELECT revision FROM siding.queues WHERE name = $1 AND removed_at IS NULL`,
	definition.KindLock:     `SELECT revision FROM siding.resources WHERE kind = 'lock' AND name = $1 AND removed_at IS NULL`,
	definition.KindAgent:    `SELECT revision FROM siding.resources WHERE kind = 'agent' AND name = $1 AND removed_at IS NULL`,
	definition.KindWorkflow: `SELECT revision FROM siding.workflows WHERE name = $1 AND removed_at IS NULL`,
}

func (a *application) checkRevision(ctx context.Context, doc definition.Document, expected int) error {
	var revision int
	err := a.row(ctx, revisionOf[doc.Kind], doc.Name()).Scan(&revision)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read revision: %w", err)
	}
	if revision != expected {
		return db.Refuse("revision_conflict", 409, "%s %s has revision %d, not %d", doc.Kind, doc.Name(), revision, expected)
	}
	return nil
}
