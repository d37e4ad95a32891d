package pgworld

import (
	"context"
	"fmt"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/scenario"
)

// processes of every session: what bounds is the definition's limit alone.
const processes = 10_000

// ApplyDefinitions applies all documents or none, and opens a session for each
// agent that isn't a cluster and has none.
func (w *World) ApplyDefinitions(ctx context.Context, docs []scenario.Document) error {
	parsed := make([]definition.Document, len(docs))
	for i, doc := range docs {
		p, err := definition.ParseJSON(definition.Kind(doc.Kind), doc.Name, doc.JSON)
		if err != nil {
			return &scenario.DocumentError{Index: i, Err: err}
		}
		p.Line = doc.Line
		parsed[i] = p
	}
	if _, err := w.catalog.Apply(ctx, parsed, person.String()); err != nil {
		return err
	}
	for _, doc := range parsed {
		if doc.Agent == nil {
			continue
		}
		if err := w.agentApplied(ctx, *doc.Agent); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) agentApplied(ctx context.Context, a definition.Agent) error {
	run, known := w.agents[a.Name]
	if a.Type == definition.Cluster {
		if known {
			return w.closeSession(ctx, a.Name, run)
		}
		return nil
	}
	if known {
		return nil
	}
	w.agents[a.Name] = &agentRun{}
	return w.openSession(ctx, a.Name)
}

// openSession gives an agent a new session that names the one before.
func (w *World) openSession(ctx context.Context, agent string) error {
	run := w.agents[agent]
	session, err := w.dispatch.OpenSession(ctx, protocol.OpenRequest{Agent: agent, Processes: processes, Previous: run.session, Host: "scenario"})
	if err != nil {
		return fmt.Errorf("agent %s: %w", agent, err)
	}
	run.session, run.lost = session.ID, false
	return nil
}

func (w *World) closeSession(ctx context.Context, agent string, run *agentRun) error {
	delete(w.agents, agent)
	if err := w.dispatch.CloseSession(ctx, run.session); err != nil {
		return fmt.Errorf("agent %s: %w", agent, err)
	}
	return nil
}

// DeleteDefinition removes a definition, and the session of an agent.
func (w *World) DeleteDefinition(ctx context.Context, target scenario.Target) error {
	if err := w.catalog.Delete(ctx, definition.Kind(target.Kind), target.Name, person.String()); err != nil {
		return err
	}
	if run, ok := w.agents[target.Name]; ok && target.Kind == scenario.KindAgent {
		return w.closeSession(ctx, target.Name, run)
	}
	return nil
}

// Pause pauses a queue, agent, lock or workflow.
func (w *World) Pause(ctx context.Context, p scenario.Pause) error {
	var until time.Time
	if p.For > 0 {
		now, err := w.now(ctx)
		if err != nil {
			return err
		}
		until = now.Add(p.For)
	}
	return w.orders.Pause(ctx, string(p.Kind), p.Name, until, person, p.Reason)
}

// Unpause ends a pause.
func (w *World) Unpause(ctx context.Context, target scenario.Target) error {
	return w.orders.Unpause(ctx, string(target.Kind), target.Name, person, "scenario")
}

// resource is the id of an agent (or cluster) or lock, or refuses.
func (w *World) resource(ctx context.Context, kind scenario.Kind, name string) (int32, error) {
	var id int32
	err := w.db.Pool.QueryRow(ctx, w.db.SQL(`SELECT siding.subject_named($1, $2)`), string(kind), name).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("find %s %s: %w", kind, name, db.Wrap(err))
	}
	return id, nil
}
