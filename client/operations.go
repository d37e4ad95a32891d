package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// ListPage is a part of a list of a queue.
type ListPage struct {
	Queue  string      `json:"queue"`
	List   string      `json:"list"`
	Orders []ListEntry `json:"orders"`
	Next   string      `json:"next,omitempty"`
}

// List reads a list of a queue, or ("-") of the orders without one: waiting,
// pending, scheduled, dead, attention or suspended.
func (c *Client) List(ctx context.Context, queue, list, cursor string, limit int) (ListPage, error) {
	var page ListPage
	return page, c.json(ctx, get(pageQuery(cursor, limit), "queues", queue, "lists", list), &page)
}

// Overflow says who is in a queue, and who is behind its capacity.
func (c *Client) Overflow(ctx context.Context, queue string) (Places, error) {
	var places Places
	return places, c.json(ctx, get(nil, "queues", queue, "overflow"), &places)
}

// Counts says how long the lists were when they were last counted.
func (c *Client) Counts(ctx context.Context) ([]Count, error) {
	var body struct{ Counts []Count }
	err := c.json(ctx, get(nil, "counts"), &body)
	return body.Counts, err
}

// Line says how the line of an agent treats blocked orders.
func (c *Client) Line(ctx context.Context, agent string) (Line, error) {
	var line Line
	return line, c.json(ctx, get(nil, "agents", agent, "line"), &line)
}

// SetLineMode sets the mode of a line: pass, strict or auto. It needs a reason.
func (c *Client) SetLineMode(ctx context.Context, agent, mode, why string) (Line, error) {
	var line Line
	what, err := send(http.MethodPost, struct {
		reason
		Mode string `json:"mode"`
	}{reason{why}, mode}, "agents", agent, "line")
	if err != nil {
		return line, err
	}
	what.repeat = true
	return line, c.json(ctx, what, &line)
}

// Pauses lists what is paused.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	var body struct{ Pauses []Pause }
	err := c.json(ctx, get(nil, "pauses"), &body)
	return body.Pauses, err
}

// Pause pauses a queue, agent, lock or workflow, until an instant (RFC 3339) or
// for a duration; empty: until Unpause. It needs a reason.
func (c *Client) Pause(ctx context.Context, kind, name, until, why string) ([]Pause, error) {
	what, err := send(http.MethodPost, struct {
		reason
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Until string `json:"until,omitempty"`
	}{reason{why}, kind, name, until}, "pauses")
	if err != nil {
		return nil, err
	}
	var body struct{ Pauses []Pause }
	err = c.json(ctx, what, &body)
	return body.Pauses, err
}

// Unpause ends a pause.
func (c *Client) Unpause(ctx context.Context, kind, name, why string) error {
	what := call{method: http.MethodDelete, path: join("pauses", kind, name), repeat: true}
	if why != "" {
		what.query = url.Values{"reason": {why}}
	}
	return c.json(ctx, what, nil)
}

// SessionPage is a part of the list of sessions.
type SessionPage struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty"`
}

// Sessions lists sessions of agents, newest first; of one agent if it is named,
// those that ended as well if asked.
func (c *Client) Sessions(ctx context.Context, agent string, ended bool, cursor string, limit int) (SessionPage, error) {
	query := pageQuery(cursor, limit)
	if agent != "" {
		query.Set("agent", agent)
	}
	if ended {
		query.Set("ended", strconv.FormatBool(ended))
	}
	var page SessionPage
	return page, c.json(ctx, get(query, "sessions"), &page)
}

// EventPage is a part of the log of events. Next continues it, also when the end
// was reached.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next"`
}

// TailEvents is the cursor that starts behind the newest event.
const TailEvents = "tail"

// Events reads the log of events behind a cursor; empty for its beginning.
func (c *Client) Events(ctx context.Context, cursor string, limit int) (EventPage, error) {
	var page EventPage
	return page, c.json(ctx, get(pageQuery(cursor, limit), "events"), &page)
}

// Tokens lists the tokens made by CreateToken.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var body struct{ Tokens []Token }
	err := c.json(ctx, get(nil, "tokens"), &body)
	return body.Tokens, err
}

// CreateToken makes a token and returns its secret, which is told this once.
func (c *Client) CreateToken(ctx context.Context, name, role string) (secret string, err error) {
	what, err := send(http.MethodPost, map[string]string{"name": name, "role": role}, "tokens")
	if err != nil {
		return "", err
	}
	var body struct{ Secret string }
	err = c.json(ctx, what, &body)
	return body.Secret, err
}

// RevokeToken makes a token void.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.json(ctx, call{method: http.MethodDelete, path: join("tokens", name), repeat: true}, nil)
}

// Ready says whether a controller takes requests; nil if it does.
func (c *Client) Ready(ctx context.Context) error {
	return c.plain(ctx, "/readyz")
}

func (c *Client) plain(ctx context.Context, path string) error {
	answer, err := c.do(ctx, call{method: http.MethodGet, path: path, root: true, repeat: true})
	if err != nil {
		return err
	}
	defer answer.Body.Close() // it was read to its end
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// OpenAPI returns the description of the API, an OpenAPI 3.1 document in JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	var document json.RawMessage
	err := c.json(ctx, call{method: http.MethodGet, path: "/openapi.json", root: true, repeat: true}, &document)
	return document, err
}
