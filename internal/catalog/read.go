package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// Entry is a definition as it stands.
type Entry struct {
	Kind definition.Kind `json:"kind"`
	Name string          `json:"name"`
	// Revision counts the changes; it is the ETag.
	Revision int `json:"revision"`
	// Version is the current version of a workflow, else 0.
	Version   int       `json:"version,omitempty"`
	UpdatedAt time.Time `json:"updated_at"`
	// Definition is the document in normal form.
	Definition json.RawMessage `json:"definition"`
}

// entries of each kind, as documents. json_strip_nulls leaves out what has no
// value, as the normal form does.
var entries = map[definition.Kind]string{
	definition.KindQueue: `
		SELECT name, revision, 0, updated_at,
		       jsonb_strip_nulls(jsonb_build_object('kind', 'queue', 'name', name, 'capacity', capacity, 'penalty', penalty))
		FROM siding.queues WHERE removed_at IS NULL AND ($1 = '' OR name = $1) ORDER BY name`,
	definition.KindLock: `
		SELECT r.name, r.revision, 0, r.updated_at,
		       jsonb_strip_nulls(jsonb_build_object('kind', 'lock', 'name', r.name, 'capacity', r.capacity, 'queues', (
		           SELECT jsonb_agg(q.name ORDER BY l.rank) FROM siding.resource_queues l JOIN siding.queues q ON q.queue_id = l.queue_id
		           WHERE l.resource_id = r.resource_id)))
		FROM siding.resources r WHERE r.kind = 'lock' AND r.removed_at IS NULL AND ($1 = '' OR r.name = $1) ORDER BY r.name`,
	definition.KindAgent: `
		SELECT r.name, r.revision, 0, r.updated_at,
		       jsonb_strip_nulls(jsonb_build_object('kind', 'agent', 'name', r.name, 'type', r.agent_type, 'processes', r.processes,
		           'max_blocked', r.max_blocked,
		           'queues', (
		               SELECT jsonb_agg(q.name ORDER BY l.rank) FROM siding.resource_queues l JOIN siding.queues q ON q.queue_id = l.queue_id
		               WHERE l.resource_id = r.resource_id),
		           'members', (
		               SELECT jsonb_agg(jsonb_build_object('agent', m.name, 'priority', c.priority) ORDER BY m.name)
		               FROM siding.cluster_members c JOIN siding.resources m ON m.resource_id = c.agent_id WHERE c.cluster_id = r.resource_id),
		           'director', (SELECT d.name FROM siding.resources d WHERE d.resource_id = r.director_id)))
		FROM siding.resources r WHERE r.kind = 'agent' AND r.removed_at IS NULL AND ($1 = '' OR r.name = $1) ORDER BY r.name`,
	definition.KindWorkflow: `
		SELECT w.name, w.revision, v.version, w.updated_at, v.definition
		FROM siding.workflows w JOIN siding.workflow_versions v ON v.version_id = w.current_version_id
		WHERE w.removed_at IS NULL AND ($1 = '' OR w.name = $1) ORDER BY w.name`,
}

// List returns all definitions of a kind, by name.
func (c *Catalog) List(ctx context.Context, kind definition.Kind) ([]Entry, error) {
	return c.read(ctx, kind, "")
}

// Get returns one definition. It refuses with unknown_KIND.
func (c *Catalog) Get(ctx context.Context, kind definition.Kind, name string) (Entry, error) {
	found, err := c.read(ctx, kind, name)
	if err != nil {
		return Entry{}, err
	}
	if len(found) == 0 || name == "" {
		return Entry{}, db.Refuse("unknown_"+string(kind), 404, "there is no %s %s", kind, name)
	}
	return found[0], nil
}

func (c *Catalog) read(ctx context.Context, kind definition.Kind, name string) ([]Entry, error) {
	statement, ok := entries[kind]
	if !ok {
		return nil, db.Refuse("unknown_kind", 404, "there are no definitions of kind %s", kind)
	}
	rows, err := c.db.Pool.Query(ctx, c.db.SQL(statement), name)
	if err != nil {
		return nil, fmt.Errorf("read %ss: %w", kind, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		e := Entry{Kind: kind}
		var text []byte
		err := row.Scan(&e.Name, &e.Revision, &e.Version, &e.UpdatedAt, &text)
		e.Definition = text
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %ss: %w", kind, err)
	}
	return found, nil
}
