package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/siding-dev/siding/internal/order"
)

type historyBody struct {
	History []order.Moment `json:"history"`
}

type outputsBody struct {
	Outputs []order.StepOutput `json:"outputs"`
}

func (s *server) historyRoutes() {
	register(s, operation{
		id: "get-order-history", method: http.MethodGet, path: "/orders/{order}/history", role: "viewer", tag: "Orders",
		summary: "What happened to an order, the oldest first", codes: []string{"order_not_found"},
	}, func(ctx context.Context, in *OrderPath) (*struct{ Body historyBody }, error) {
		id, err := s.Orders.ID(ctx, in.Order)
		if err != nil {
			return nil, err
		}
		moments, err := s.Orders.History(ctx, id)
		return &struct{ Body historyBody }{historyBody{moments}}, err
	})
	register(s, operation{
		id: "get-order-outputs", method: http.MethodGet, path: "/orders/{order}/outputs", role: "viewer", tag: "Orders",
		summary: "Values that the order's jobs handed back", codes: []string{"order_not_found"},
	}, func(ctx context.Context, in *OrderPath) (*struct{ Body outputsBody }, error) {
		id, err := s.Orders.ID(ctx, in.Order)
		if err != nil {
			return nil, err
		}
		outputs, err := s.Orders.Outputs(ctx, id)
		return &struct{ Body outputsBody }{outputsBody{outputs}}, err
	})
	register(s, operation{
		id: "get-order-output", method: http.MethodGet, path: "/orders/{order}/output", role: "viewer", tag: "Orders",
		summary:     "What the order's job wrote to stdout or stderr",
		description: "The answer is the text as it was written. Follow a running job by asking again from `X-Siding-Next-Offset`.",
		codes:       []string{"order_not_found", "invalid_filter"},
	}, s.getOutput)
	s.huma.OpenAPI().Paths[Base+"/orders/{order}/output"].Get.Responses["200"].Content = map[string]*huma.MediaType{
		"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}},
	}
}

type outputInput struct {
	OrderPath
	Stream string `query:"stream" default:"stdout" enum:"stdout,stderr"`
	Lease  int64  `query:"lease" minimum:"0" doc:"The attempt; 0 for the last one that wrote anything"`
	Offset int64  `query:"offset" minimum:"0" doc:"First byte wanted"`
	Tail   int64  `query:"tail" minimum:"0" doc:"That many bytes from the end, instead of offset"`
	Limit  int64  `query:"limit" default:"1048576" minimum:"1" maximum:"1048576" doc:"Most bytes"`
}

type outputText struct {
	ContentType string `header:"Content-Type"`
	Lease       string `header:"X-Siding-Lease" doc:"The attempt"`
	Offset      string `header:"X-Siding-Offset" doc:"Offset of the first byte"`
	Next        string `header:"X-Siding-Next-Offset" doc:"Offset behind the last byte"`
	Size        string `header:"X-Siding-Size" doc:"Bytes written up to now"`
	Body        []byte
}

func (s *server) getOutput(ctx context.Context, in *outputInput) (*outputText, error) {
	id, err := s.Orders.ID(ctx, in.Order)
	if err != nil {
		return nil, err
	}
	text, err := s.Orders.Text(ctx, id, order.TextRequest{
		Stream: in.Stream, Lease: in.Lease, Offset: in.Offset, Tail: in.Tail, Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return &outputText{
		ContentType: "text/plain; charset=utf-8", Lease: number(text.Lease), Offset: number(text.Offset),
		Next: number(text.Offset + int64(len(text.Data))), Size: number(text.Size), Body: text.Data,
	}, nil
}
