package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/order"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const base = `
kind: queue
name: Q1
capacity: 5
penalty: 2
---
kind: queue
name: Q2
---
kind: lock
name: L1
capacity: 3
queues: [Q1, Q2]
---
kind: lock
name: L2
capacity: 1
---
kind: agent
name: a1
processes: 4
queues: [Q1]
---
kind: agent
name: d1
type: director
---
kind: agent
name: c1
type: cluster
members: [{agent: a1, priority: 10}, {agent: d1, priority: 1}]
director: d1
---
kind: workflow
name: w
ordering: independent
steps: [{job: j, noop: true, agent: a1}]
---
kind: workflow
name: locked
ordering: independent
defaults: {agent: a1}
steps: [{lock: {L1: 2}, steps: [{job: j, noop: true}]}]
`

type room struct {
	t       *testing.T
	db      *db.DB
	catalog *catalog.Catalog
	orders  *order.Orders
}

// empty is a catalog without definitions.
func empty(t *testing.T) *room {
	t.Helper()
	d := dbtest.New(t)
	return &room{t: t, db: d, catalog: catalog.New(d, db.NoWaker{}), orders: order.New(d, db.NoWaker{})}
}

// setup is a catalog with the base.
func setup(t *testing.T) *room {
	t.Helper()
	r := empty(t)
	r.apply(base)
	return r
}

func (r *room) try(text string) ([]catalog.Change, error) {
	r.t.Helper()
	docs, err := definition.Parse("f.yaml", []byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.catalog.Apply(r.t.Context(), docs, "ann")
}

// apply returns what was done, as "kind name action revision" per document.
func (r *room) apply(text string) string {
	r.t.Helper()
	changes, err := r.try(text)
	if err != nil {
		r.t.Fatalf("apply %s: %v", text, err)
	}
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = fmt.Sprintf("%s %s %s %d", c.Kind, c.Name, c.Action, c.Revision)
		if c.Version > 0 {
			lines[i] += fmt.Sprintf(" v%d", c.Version)
		}
	}
	return strings.Join(lines, ", ")
}

// refused returns the problems of definitions, as "line path code".
func (r *room) refused(text string) string {
	r.t.Helper()
	_, err := r.try(text)
	var problems *definition.Errors
	if !errors.As(err, &problems) {
		r.t.Fatalf("apply %s: %v, want problems", text, err)
	}
	var lines []string
	for _, p := range problems.Problems {
		if p.File != "f.yaml" || p.Column == 0 {
			r.t.Errorf("problem without its place: %+v", p)
		}
		lines = append(lines, fmt.Sprintf("%d %s %s", p.Line, p.Path, p.Code))
	}
	return strings.Join(lines, ", ")
}

func (r *room) add(orders ...string) []int64 {
	r.t.Helper()
	added, err := r.orders.Add(r.t.Context(), json.RawMessage("["+strings.Join(orders, ",")+"]"), order.Person{Name: "ann"})
	if err != nil {
		r.t.Fatal(err)
	}
	value[int](r, `SELECT placed FROM siding.intake(1000, true)`)
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

func (r *room) cancel(ids ...int64) {
	r.t.Helper()
	for _, id := range ids {
		if err := r.orders.Cancel(r.t.Context(), id, order.Person{Name: "ann"}, "test"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// remove deletes a definition; it returns the code of a refusal, or "".
func (r *room) remove(kind definition.Kind, name string) string {
	r.t.Helper()
	err := r.catalog.Delete(r.t.Context(), kind, name, "ann")
	if err == nil {
		return ""
	}
	refusal, ok := db.AsRefusal(err)
	if !ok {
		r.t.Fatalf("delete %s %s: %v", kind, name, err)
	}
	return refusal.Code
}

func value[T any](r *room, statement string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.db.Pool.QueryRow(r.t.Context(), r.db.SQL(statement), args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
	return v
}
