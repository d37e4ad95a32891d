package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Orders are named by their id or by ref:REFERENCE.

// Add adds one order.
func (c *Client) Add(ctx context.Context, order NewOrder) (Added, error) {
	added, err := c.AddMany(ctx, []NewOrder{order})
	if err != nil {
		return Added{}, err
	}
	return added[0], nil
}

// AddMany adds orders by one call, all or none, in this order; at most 10,000.
func (c *Client) AddMany(ctx context.Context, orders []NewOrder) ([]Added, error) {
	what, err := send(http.MethodPost, orders, "orders")
	if err != nil {
		return nil, err
	}
	what.repeat = true
	for _, o := range orders {
		what.repeat = what.repeat && o.Ref != ""
	}
	var added []Added
	if err := c.json(ctx, what, &added); err != nil {
		return nil, err
	}
	if len(added) != len(orders) {
		return nil, fmt.Errorf("added %d orders, the answer has %d", len(orders), len(added))
	}
	return added, nil
}

// AddJSON adds orders given as a JSON array of objects, as AddMany does.
func (c *Client) AddJSON(ctx context.Context, orders json.RawMessage) ([]Added, error) {
	var refs []struct {
		Ref any `json:"ref"`
	}
	if err := json.Unmarshal(orders, &refs); err != nil {
		return nil, fmt.Errorf("a JSON array of objects is expected: %w", err)
	}
	what := call{method: http.MethodPost, path: join("orders"), repeat: true}
	what.setText(orders, "application/json")
	for _, o := range refs {
		what.repeat = what.repeat && o.Ref != nil
	}
	var added []Added
	return added, c.json(ctx, what, &added)
}

// Order reads one order.
func (c *Client) Order(ctx context.Context, order string) (Order, error) {
	var o Order
	return o, c.json(ctx, get(nil, "orders", order), &o)
}

// OrderFilter says which orders a list gives; what is empty doesn't filter.
type OrderFilter struct {
	// State is a state, or live or ended.
	State    string
	Workflow string
	// Queue is a queue's name, "-" for the orders without one.
	Queue string
	Key   string
	// RefPrefix gives the orders whose reference begins so, by reference; else
	// the newest come first.
	RefPrefix string
}

// OrderPage is a part of a list. Next continues it; empty at its end. A page can
// be short, or empty, and have a Next.
type OrderPage struct {
	Orders []Order `json:"orders"`
	Next   string  `json:"next,omitempty"`
}

// Orders lists orders: the page at a cursor, empty for the first one. Limit 0
// means the default.
func (c *Client) Orders(ctx context.Context, filter OrderFilter, cursor string, limit int) (OrderPage, error) {
	query := pageQuery(cursor, limit)
	for name, value := range map[string]string{
		"state": filter.State, "workflow": filter.Workflow, "queue": filter.Queue, "key": filter.Key, "ref": filter.RefPrefix,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var page OrderPage
	return page, c.json(ctx, get(query, "orders"), &page)
}

// EachOrder lists all orders that fit a filter, page by page. It ends with the
// first error.
func (c *Client) EachOrder(ctx context.Context, filter OrderFilter) iter.Seq2[Order, error] {
	return func(yield func(Order, error) bool) {
		for cursor := ""; ; {
			page, err := c.Orders(ctx, filter, cursor, 0)
			if err != nil {
				yield(Order{}, err)
				return
			}
			for _, o := range page.Orders {
				if !yield(o, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

func pageQuery(cursor string, limit int) url.Values {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return query
}

// Why says why an order waits.
func (c *Client) Why(ctx context.Context, order string) (Why, error) {
	var why Why
	return why, c.json(ctx, get(nil, "orders", order, "why"), &why)
}

// History returns what happened to an order, the oldest first.
func (c *Client) History(ctx context.Context, order string) ([]Moment, error) {
	var body struct{ History []Moment }
	err := c.json(ctx, get(nil, "orders", order, "history"), &body)
	return body.History, err
}

// Outputs returns the values that an order's jobs handed back.
func (c *Client) Outputs(ctx context.Context, order string) ([]StepOutput, error) {
	var body struct{ Outputs []StepOutput }
	err := c.json(ctx, get(nil, "orders", order, "outputs"), &body)
	return body.Outputs, err
}

// TextRequest says which part of what a job wrote is wanted.
type TextRequest struct {
	// Stream is stdout (also if empty) or stderr.
	Stream string
	// Lease names the attempt; 0 means the last one that wrote anything.
	Lease int64
	// Offset is the first byte; Tail, if above 0, that many bytes from the end
	// instead.
	Offset, Tail int64
	// Limit is the most bytes; 0 means the default.
	Limit int64
}

// Text is a part of what an attempt wrote.
type Text struct {
	Lease int64
	// Offset is that of the first byte, Next that behind the last one, Size that
	// of the end up to now.
	Offset, Next, Size int64
	Data               []byte
}

// Text reads what an order's job wrote. To follow a running job ask again from
// Next.
func (c *Client) Text(ctx context.Context, order string, req TextRequest) (Text, error) {
	query := url.Values{}
	if req.Stream != "" {
		query.Set("stream", req.Stream)
	}
	for name, value := range map[string]int64{"lease": req.Lease, "offset": req.Offset, "tail": req.Tail, "limit": req.Limit} {
		if value != 0 {
			query.Set(name, strconv.FormatInt(value, 10))
		}
	}
	what := get(query, "orders", order, "output")
	answer, err := c.do(ctx, what)
	if err != nil {
		return Text{}, err
	}
	defer answer.Body.Close() // it was read to its end
	var text Text
	for name, into := range map[string]*int64{
		"X-Siding-Lease": &text.Lease, "X-Siding-Offset": &text.Offset, "X-Siding-Next-Offset": &text.Next, "X-Siding-Size": &text.Size,
	} {
		if *into, err = strconv.ParseInt(answer.Header.Get(name), 10, 64); err != nil {
			return Text{}, fmt.Errorf("%s %s: header %s: %w", what.method, what.path, name, err)
		}
	}
	if text.Data, err = io.ReadAll(answer.Body); err != nil {
		return Text{}, fmt.Errorf("%s %s: read the answer: %w", what.method, what.path, err)
	}
	return text, nil
}

func (c *Client) decide(ctx context.Context, order, action string, body any) (Order, error) {
	var o Order
	what, err := send(http.MethodPost, body, "orders", order, action)
	if err != nil {
		return o, err
	}
	return o, c.json(ctx, what, &o)
}

type reason struct {
	Reason string `json:"reason,omitempty"`
}

// Cancel ends an order; one that runs is stopped first. Like all decisions it
// returns the order as it stands then.
func (c *Client) Cancel(ctx context.Context, order, why string) (Order, error) {
	return c.decide(ctx, order, "cancel", reason{why})
}

// Suspend takes an order out of its line; a running one after its step, or at
// once with kill.
func (c *Client) Suspend(ctx context.Context, order string, kill bool, why string) (Order, error) {
	return c.decide(ctx, order, "suspend", struct {
		reason
		Kill bool `json:"kill,omitempty"`
	}{reason{why}, kill})
}

// Resume puts a suspended order back in line.
func (c *Client) Resume(ctx context.Context, order, why string) (Order, error) {
	return c.decide(ctx, order, "resume", reason{why})
}

// Resolve decides about an order in attention (resume, skip, cancel) or dead
// (retry, skip, cancel). It needs a reason.
func (c *Client) Resolve(ctx context.Context, order, action, why string) (Order, error) {
	return c.decide(ctx, order, "resolve", struct {
		reason
		Action string `json:"action"`
	}{reason{why}, action})
}

// Release lets an order go ahead of its predecessors in its key. It needs a
// reason.
func (c *Client) Release(ctx context.Context, order, why string) (Order, error) {
	return c.decide(ctx, order, "release", reason{why})
}

// Assign assigns a queue, or none (the empty string).
func (c *Client) Assign(ctx context.Context, order, queue, why string) (Order, error) {
	body := struct {
		reason
		Queue *string `json:"queue"`
	}{reason{why}, &queue}
	if queue == "" {
		body.Queue = nil
	}
	return c.decide(ctx, order, "assign", body)
}

// Move moves a waiting order within its queue: first, last, or before or after
// another one.
func (c *Client) Move(ctx context.Context, order, to, other, why string) (Order, error) {
	return c.decide(ctx, order, "move", struct {
		reason
		To    string `json:"to"`
		Other string `json:"other,omitempty"`
	}{reason{why}, to, other})
}
