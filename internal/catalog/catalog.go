// Package catalog keeps the definitions that operators apply: queues, locks,
// agents and workflows. Applying is declarative: a document replaces the whole
// definition of its name, what it leaves out gets its default, and what is the
// same already changes nothing.
package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// Catalog is the room's entrance.
type Catalog struct {
	db    *db.DB
	waker db.Waker
}

// New returns the catalog of a schema.
func New(d *db.DB, waker db.Waker) *Catalog {
	return &Catalog{db: d, waker: waker}
}

// Action says what Apply did with a document.
type Action string

// What Apply does.
const (
	Created   Action = "created"
	Changed   Action = "changed"
	Unchanged Action = "unchanged"
)

// Change is what Apply did with one document.
type Change struct {
	Kind   definition.Kind `json:"kind"`
	Name   string          `json:"name"`
	Action Action          `json:"action"`
	// Revision counts the changes of a definition from 1; it is its ETag.
	Revision int `json:"revision"`
	// Version is the workflow's version, 0 for other kinds.
	Version int `json:"version,omitempty"`
}

// application is one Apply under way.
type application struct {
	tx     pgx.Tx
	db     *db.DB
	person string
	lines  []int32
}

// Apply applies all documents or none, each kind after those that it may refer
// to.
//
// Errors: *definition.Errors when a document refers to what isn't there or
// makes lock steps that could wait for each other in a cycle.
func (c *Catalog) Apply(ctx context.Context, docs []definition.Document, person string) ([]Change, error) {
	return c.apply(ctx, docs, person, nil)
}

// ApplyIf applies one document if its definition has the revision still, or
// (0) doesn't exist yet. Otherwise it refuses with revision_conflict.
func (c *Catalog) ApplyIf(ctx context.Context, doc definition.Document, revision int, person string) (Change, error) {
	changes, err := c.apply(ctx, []definition.Document{doc}, person, &revision)
	if err != nil {
		return Change{}, err
	}
	return changes[0], nil
}

func (c *Catalog) apply(ctx context.Context, docs []definition.Document, person string, revision *int) ([]Change, error) {
	changes := make([]Change, len(docs))
	var lines []int32
	err := c.db.Tx(ctx, func(tx pgx.Tx) error {
		a := &application{tx: tx, db: c.db, person: person}
		// Applications come one after the other: what one checks must not be
		// taken away by another meanwhile.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, c.db.Schema.AdvisoryKey("catalog")); err != nil {
			return fmt.Errorf("lock the catalog: %w", err)
		}
		if revision != nil {
			if err := a.checkRevision(ctx, docs[0], *revision); err != nil {
				return err
			}
		}
		if err := a.check(ctx, docs); err != nil {
			return err
		}
		for _, i := range a.order(docs) {
			change, err := a.one(ctx, docs[i])
			if err != nil {
				return fmt.Errorf("%s %s: %w", docs[i].Kind, docs[i].Name(), err)
			}
			changes[i] = change
		}
		lines = nil
		return tx.QueryRow(ctx, c.db.SQL(`SELECT siding.grant_locks($1)`), nonNil(a.lines)).Scan(&lines)
	})
	if err != nil {
		return nil, fmt.Errorf("apply definitions: %w", err)
	}
	c.waker.Wake(lines...)
	return changes, nil
}

func nonNil(lines []int32) []int32 {
	if lines == nil {
		return []int32{}
	}
	return lines
}

// order sorts documents so that each comes after those it may refer to. A
// cluster comes after its members and its director.
func (a *application) order(docs []definition.Document) []int {
	rank := func(d definition.Document) int {
		if d.Agent != nil && d.Agent.Type == definition.Cluster {
			return len(definition.Kinds())
		}
		r := slices.Index(definition.Kinds(), d.Kind)
		if d.Kind == definition.KindWorkflow {
			r += 2
		}
		return r
	}
	order := make([]int, len(docs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return rank(docs[i]) - rank(docs[j]) })
	return order
}

// one applies one document.
func (a *application) one(ctx context.Context, doc definition.Document) (Change, error) {
	var change Change
	var err error
	switch {
	case doc.Queue != nil:
		change, err = a.queue(ctx, *doc.Queue)
	case doc.Lock != nil:
		change, err = a.lock(ctx, *doc.Lock)
	case doc.Agent != nil:
		change, err = a.agent(ctx, *doc.Agent)
	case doc.Workflow != nil:
		change, err = a.workflow(ctx, doc)
	default:
		return Change{}, fmt.Errorf("document of kind %q holds nothing", doc.Kind)
	}
	if err != nil {
		return Change{}, err
	}
	change.Kind, change.Name = doc.Kind, doc.Name()
	if change.Action != Unchanged {
		err = a.record(ctx, "apply", doc.Kind, doc.Name(), doc)
	}
	return change, err
}

// record writes the decision into the log of events.
func (a *application) record(ctx context.Context, what string, kind definition.Kind, name string, detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	_, err = a.exec(ctx, `SELECT siding.record(NULL, $1, $2, $3, NULL, $4::jsonb)`, what, string(kind)+"/"+name, a.person, string(text))
	return err
}

func (a *application) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := a.tx.Exec(ctx, a.db.SQL(statement), args...)
	return tag.RowsAffected(), err
}

func (a *application) row(ctx context.Context, statement string, args ...any) pgx.Row {
	return a.tx.QueryRow(ctx, a.db.SQL(statement), args...)
}
