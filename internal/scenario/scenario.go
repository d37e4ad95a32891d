// Package scenario reads scenario files, runs them on a World and compares what
// was observed with what the file expects. A scenario is an observation table
// that can be run: a small world, what happens to it, and what must be seen.
//
// The package knows the format and the runner's own rules (which agent claims
// when, what ends first) and no rule of the product: those come from the World,
// which is the real thing on a real database.
package scenario

import (
	"context"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Scenario is a parsed file.
type Scenario struct {
	// File is the name given to Parse, Title what the file calls itself.
	File  string
	Title string
	// Definitions in the order queues, locks, agents, workflows, each as written.
	Definitions []Document
	Steps       []Step
}

// Step is one thing that happens, or one comparison.
type Step struct {
	Line int
	// Word is the step's name in the file, such as add or expect.
	Word   string
	action action
}

// action is what a step does. An error that wraps a Refusal is the product's
// answer; any other is a broken world.
type action interface {
	do(ctx context.Context, r *runner) error
}

// defaultReason stands for a reason that a step doesn't give.
const defaultReason = "scenario"

// Parse reads a scenario. The error joins every mistake found, each a
// *ParseError with line and column; filename is only for them.
func Parse(filename string, src []byte) (*Scenario, error) {
	r := &reader{file: filename}
	top := r.document(src)
	if top == nil {
		return nil, r.err()
	}
	s := &Scenario{File: filename}
	m := r.mapping(top, "a scenario file")
	if n, ok := m.get("scenario"); ok {
		s.Title = r.name(n, "scenario")
	} else {
		m.missing("scenario")
	}
	for _, section := range []struct {
		name string
		read func(n ast.Node) Document
	}{
		{"queues", r.queue}, {"locks", r.lock}, {"agents", r.agent}, {"workflows", r.workflow},
	} {
		n, ok := m.get(section.name)
		if !ok || isNull(n) {
			continue
		}
		nodes, _ := r.list(n, section.name)
		for _, node := range nodes {
			doc := section.read(node)
			for _, other := range s.Definitions {
				if other.Target == doc.Target && doc.Name != "" {
					r.fail(node, "%s %s is defined already in line %d", doc.Kind, doc.Name, other.Line)
				}
			}
			s.Definitions = append(s.Definitions, doc)
		}
	}
	if n, ok := m.get("steps"); ok {
		nodes, _ := r.list(n, "steps")
		for _, node := range nodes {
			if step, ok := r.step(node); ok {
				s.Steps = append(s.Steps, step)
			}
		}
	} else {
		m.missing("steps")
	}
	m.done()
	if err := r.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// duration reads a length of time such as 15m or 1h30m.
func (r *reader) duration(n ast.Node, what string) time.Duration {
	s, ok := r.text(n, what)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		r.fail(n, "%s: %q is no duration such as 90s, 15m or 1h30m", what, s)
	}
	return d
}

// length reads a duration that isn't negative.
func (r *reader) length(n ast.Node, what string) time.Duration {
	d := r.duration(n, what)
	if d < 0 {
		r.fail(n, "%s must not be negative", what)
	}
	return d
}

func (r *reader) optionalReason(m *mapping) string {
	n, ok := m.get("reason")
	if !ok {
		return defaultReason
	}
	// An empty reason is passed on: that the product refuses it is its rule.
	s, _ := r.text(n, "reason")
	return s
}

func (r *reader) requiredName(m *mapping, field string) string {
	n, ok := m.get(field)
	if !ok {
		m.missing(field)
		return ""
	}
	return r.name(n, field)
}

func (r *reader) requiredOrder(m *mapping) string {
	n, ok := m.get("order")
	if !ok {
		m.missing("order")
		return ""
	}
	return r.orderName(n, "order")
}
