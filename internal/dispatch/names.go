package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/db"
)

// names remembers what never changes: the steps of workflow versions and the
// names behind ids.
type names struct {
	db        *db.DB
	steps     sync.Map // step id -> *step
	queues    sync.Map // queue id -> name
	resources sync.Map // resource id -> kind/name
	agents    sync.Map // kind/name -> resource id
}

type step struct {
	workflow string
	version  int
	path     string
	job      *protocol.Job
}

func newNames(d *db.DB) *names { return &names{db: d} }

func (n *names) step(ctx context.Context, id int32) (*step, error) {
	if known, ok := n.steps.Load(id); ok {
		return known.(*step), nil
	}
	s := &step{}
	var spec []byte
	err := n.db.Pool.QueryRow(ctx, n.db.SQL(`
		SELECT w.name, v.version, s.step_path, s.job_spec
		FROM siding.steps s JOIN siding.workflow_versions v ON v.version_id = s.version_id JOIN siding.workflows w ON w.workflow_id = v.workflow_id
		WHERE s.step_id = $1`), id).Scan(&s.workflow, &s.version, &s.path, &spec)
	if err != nil {
		return nil, fmt.Errorf("read step %d: %w", id, err)
	}
	if spec != nil {
		s.job = &protocol.Job{}
		if err := json.Unmarshal(spec, s.job); err != nil {
			return nil, fmt.Errorf("read job of step %d: %w", id, err)
		}
	}
	n.steps.Store(id, s)
	return s, nil
}

// queue is the name of a queue, empty for 0.
func (n *names) queue(ctx context.Context, id int32) (string, error) {
	if id == 0 {
		return "", nil
	}
	if known, ok := n.queues.Load(id); ok {
		return known.(string), nil
	}
	var name string
	if err := n.db.Pool.QueryRow(ctx, n.db.SQL(`SELECT name FROM siding.queues WHERE queue_id = $1`), id).Scan(&name); err != nil {
		return "", fmt.Errorf("read queue %d: %w", id, err)
	}
	n.queues.Store(id, name)
	return name, nil
}

// topic is what NOTIFY says for a line: kind/name.
func (n *names) topic(ctx context.Context, line int32) (string, error) {
	if known, ok := n.resources.Load(line); ok {
		return known.(string), nil
	}
	var topic string
	if err := n.db.Pool.QueryRow(ctx, n.db.SQL(`SELECT kind || '/' || name FROM siding.resources WHERE resource_id = $1`), line).Scan(&topic); err != nil {
		return "", fmt.Errorf("read line %d: %w", line, err)
	}
	n.resources.Store(line, topic)
	n.agents.Store(topic, line)
	return topic, nil
}

// lineOf is the line that a topic names.
func (n *names) lineOf(ctx context.Context, topic string) (int32, error) {
	if known, ok := n.agents.Load(topic); ok {
		return known.(int32), nil
	}
	var line int32
	if err := n.db.Pool.QueryRow(ctx, n.db.SQL(`SELECT resource_id FROM siding.resources WHERE kind || '/' || name = $1`), topic).Scan(&line); err != nil {
		return 0, fmt.Errorf("read line %s: %w", topic, err)
	}
	n.agents.Store(topic, line)
	return line, nil
}
