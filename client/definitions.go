package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// Kinds of definitions.
const (
	Queue    = "queue"
	Lock     = "lock"
	AgentDef = "agent"
	Workflow = "workflow"
)

// plural is the path of a kind.
func plural(kind string) (string, error) {
	switch kind {
	case Queue, Lock, AgentDef, Workflow:
		return kind + "s", nil
	}
	return "", fmt.Errorf("%q is no kind of definition: queue, lock, agent or workflow", kind)
}

// Definitions lists the definitions of a kind by name.
func (c *Client) Definitions(ctx context.Context, kind string) ([]Definition, error) {
	path, err := plural(kind)
	if err != nil {
		return nil, err
	}
	var body struct{ Definitions []Definition }
	err = c.json(ctx, get(nil, path), &body)
	return body.Definitions, err
}

// Definition reads one definition.
func (c *Client) Definition(ctx context.Context, kind, name string) (Definition, error) {
	path, err := plural(kind)
	if err != nil {
		return Definition{}, err
	}
	var d Definition
	return d, c.json(ctx, get(nil, path, name), &d)
}

// Condition says when a definition is to be changed.
type Condition struct{ header, value string }

// Always changes it whatever it was.
func Always() Condition { return Condition{} }

// IfRevision changes it if it still has the revision; else the *Problem has the
// code revision_conflict.
func IfRevision(revision int) Condition {
	return Condition{"If-Match", `"` + strconv.Itoa(revision) + `"`}
}

// IfAbsent makes it if it doesn't exist.
func IfAbsent() Condition { return Condition{"If-None-Match", "*"} }

// PutDefinition applies one definition, a JSON object that is the whole of it.
func (c *Client) PutDefinition(ctx context.Context, kind, name string, definition json.RawMessage, when Condition) (Change, error) {
	path, err := plural(kind)
	if err != nil {
		return Change{}, err
	}
	// With a condition a repeated call would meet its own change.
	what := call{method: http.MethodPut, path: join(path, name), repeat: when == Always()}
	what.setText(definition, "application/json")
	if when.header != "" {
		what.set(when.header, when.value)
	}
	var change Change
	return change, c.json(ctx, what, &change)
}

// DeleteDefinition removes a definition that nothing needs.
func (c *Client) DeleteDefinition(ctx context.Context, kind, name string) error {
	path, err := plural(kind)
	if err != nil {
		return err
	}
	return c.json(ctx, call{method: http.MethodDelete, path: join(path, name)}, nil)
}

// Apply applies all definitions of a text, YAML or JSON documents, or none.
// What is wrong with them stands in Errors of the *Problem, with line and
// column.
func (c *Client) Apply(ctx context.Context, documents []byte) ([]Change, error) {
	what := call{method: http.MethodPost, path: join("apply"), repeat: true}
	what.setText(documents, "application/yaml")
	var body struct{ Changes []Change }
	err := c.json(ctx, what, &body)
	return body.Changes, err
}
