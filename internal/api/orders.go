package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/siding-dev/siding/internal/order"
)

// OrderPath is how requests name an order. Like other parts of inputs it is
// exported because huma looks into exported fields only.
type OrderPath struct {
	Order string `path:"order" doc:"Id of the order, or ref:REFERENCE"`
}

// orderBody answers with an order.
type orderBody struct{ Body order.Order }

func (s *server) orderRoutes() {
	register(s, operation{
		id: "add-orders", method: http.MethodPost, path: "/orders", role: "submitter", tag: "Orders",
		summary: "Add one order, or many",
		description: "The body is an object `{workflow, ref, key, queue, due, args, wait_limit, attachments}`, or an array of such objects, which are added " +
			"all or none, in this order. With a `ref` adding is idempotent: the same reference and content gives the existing order " +
			"(200 where all existed), another content is a conflict.",
		codes: []string{
			"invalid_order", "unknown_workflow", "unknown_queue", "key_required", "key_not_allowed", "invalid_key", "invalid_attachment",
			"reference_conflict", "too_many_orders",
		},
		status: http.StatusCreated, limit: maxBulk, raw: true, content: []string{"application/json"},
	}, s.addOrders)
	register(s, operation{
		id: "list-orders", method: http.MethodGet, path: "/orders", role: "viewer", tag: "Orders",
		summary: "List orders, live and ended, newest first",
		codes:   []string{"invalid_cursor", "invalid_filter", "unknown_workflow", "unknown_queue"},
	}, s.listOrders)
	register(s, operation{
		id: "get-order", method: http.MethodGet, path: "/orders/{order}", role: "viewer", tag: "Orders",
		summary: "Read one order",
		codes:   []string{"order_not_found"},
	}, s.getOrder)
	s.describeOrders()
}

// describeOrders documents the body that addOrders takes as it is: the rules of
// its fields are siding.add_orders's, which says what is wrong in its own words.
func (s *server) describeOrders() {
	text := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	one := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"workflow"}, AdditionalProperties: false,
		Properties: map[string]*huma.Schema{
			"workflow":   text("Name of the workflow"),
			"ref":        text("Reference of your own, 1 to 256 characters, which makes adding idempotent"),
			"key":        text("Key, where the workflow takes it from the order"),
			"queue":      text("Queue to assign"),
			"due":        text("Instant (RFC 3339) or duration from now, before which it doesn't start"),
			"args":       {Type: huma.TypeObject, Description: "Arguments, at most 1 MiB", AdditionalProperties: true},
			"wait_limit": text("How long it may wait for its attachments"),
			"attachments": {Type: huma.TypeArray, Description: "Attachments to expect instead of the workflow's", Items: &huma.Schema{
				Type: huma.TypeObject, Required: []string{"name"}, AdditionalProperties: false,
				Properties: map[string]*huma.Schema{
					"name": text("Name"), "size": {Type: huma.TypeInteger, Description: "Size in bytes"},
					"sha256": text("SHA-256 in hexadecimal"), "content": text("The bytes themselves, in base64, if they are few"),
				},
			}},
		},
	}
	s.huma.OpenAPI().Components.Schemas.Map()["NewOrder"] = one
	ref := &huma.Schema{Ref: "#/components/schemas/NewOrder"}
	s.huma.OpenAPI().Paths[Base+"/orders"].Post.RequestBody.Content["application/json"].Schema = &huma.Schema{
		OneOf: []*huma.Schema{ref, {Type: huma.TypeArray, Items: ref}},
	}
}

type addedBody struct {
	Status int
	Body   any `doc:"{id, existing}, or an array of them in the order of the request"`
}

func (s *server) addOrders(ctx context.Context, in *struct{ RawBody []byte }) (*addedBody, error) {
	body := bytes.TrimLeft(in.RawBody, " \t\r\n")
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	single := body[0] != '['
	if single {
		body = append(append([]byte{'['}, body...), ']')
	}
	added, err := s.Orders.Add(ctx, json.RawMessage(body), personOf(ctx))
	if err != nil {
		return nil, err
	}
	if added == nil {
		added = []order.Added{}
	}
	out := &addedBody{Status: http.StatusOK, Body: added}
	for _, a := range added {
		if !a.Existing {
			out.Status = http.StatusCreated
		}
	}
	if single {
		out.Body = added[0]
	}
	return out, nil
}

// checkJSON says what is wrong with a body that is not one JSON value.
func checkJSON(body []byte) error {
	var value json.RawMessage
	err := json.Unmarshal(body, &value)
	if err == nil {
		return nil
	}
	p := newProblem("invalid_request", "the body is not JSON: "+err.Error())
	p.Status = http.StatusBadRequest
	item := ProblemItem{Message: err.Error()}
	if syntax, ok := err.(*json.SyntaxError); ok { //nolint:errorlint // Unmarshal returns it as it is
		before := body[:min(max(syntax.Offset-1, 0), int64(len(body)))]
		item.Line = bytes.Count(before, []byte("\n")) + 1
		item.Column = len(before) - bytes.LastIndexByte(before, '\n')
	}
	p.Errors = []ProblemItem{item}
	return p
}

type listOrdersInput struct {
	State    string `query:"state" doc:"A state; live or ended"`
	Workflow string `query:"workflow" doc:"Name of a workflow"`
	Queue    string `query:"queue" doc:"Name of a queue; - for the orders without one"`
	Key      string `query:"key"`
	Ref      string `query:"ref" doc:"Beginning of references; the list is then by reference"`
	PageInput
}

// PageInput has the parameters of lists that come in pages.
type PageInput struct {
	Cursor string `query:"cursor" doc:"The next of the page before"`
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Length of a page"`
}

func (s *server) listOrders(ctx context.Context, in *listOrdersInput) (*struct{ Body order.Page }, error) {
	page, err := s.Orders.List(ctx, order.Filter{
		State: in.State, Workflow: in.Workflow, Queue: in.Queue, Key: in.Key, RefPrefix: in.Ref, Cursor: in.Cursor, Limit: in.Limit,
	})
	return &struct{ Body order.Page }{page}, err
}

func (s *server) getOrder(ctx context.Context, in *OrderPath) (*orderBody, error) {
	id, err := s.Orders.ID(ctx, in.Order)
	if err != nil {
		return nil, err
	}
	return s.orderNow(ctx, id)
}

func (s *server) orderNow(ctx context.Context, id int64) (*orderBody, error) {
	o, err := s.Orders.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &orderBody{o}, nil
}
