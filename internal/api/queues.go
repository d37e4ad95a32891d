package api

import (
	"context"
	"net/http"

	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/why"
)

func (s *server) whyRoutes() {
	reasons := why.New(s.DB)
	register(s, operation{
		id: "why", method: http.MethodGet, path: "/orders/{order}/why", role: "viewer", tag: "Orders",
		summary: "Why an order waits: a row per obstacle", codes: []string{"order_not_found", "order_final"},
	}, func(ctx context.Context, in *OrderPath) (*struct{ Body why.Answer }, error) {
		id, err := s.Orders.ID(ctx, in.Order)
		if err != nil {
			return nil, err
		}
		answer, err := reasons.Of(ctx, id)
		return &struct{ Body why.Answer }{answer}, err
	})
}

// QueuePath is how requests name a queue.
type QueuePath struct {
	Name string `path:"name" doc:"Name of the queue; - for the orders without one"`
}

type listInput struct {
	QueuePath
	List string `path:"list" doc:"waiting, pending, scheduled, dead, attention or suspended"`
	PageInput
}

type overflowInput struct {
	QueuePath
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Most orders of each resource beyond the capacity"`
}

type countsBody struct {
	Counts []queue.Count `json:"counts"`
}

func (s *server) queueRoutes() {
	queues := queue.New(s.DB)
	register(s, operation{
		id: "get-list", method: http.MethodGet, path: "/queues/{name}/lists/{list}", role: "viewer", tag: "Queues",
		summary: "A list of a queue", codes: []string{"unknown_queue", "unknown_list", "invalid_cursor", "invalid_limit"},
	}, func(ctx context.Context, in *listInput) (*struct{ Body queue.Page }, error) {
		page, err := queues.List(ctx, in.Name, in.List, in.Cursor, in.Limit)
		return &struct{ Body queue.Page }{page}, err
	})
	register(s, operation{
		id: "get-overflow", method: http.MethodGet, path: "/queues/{name}/overflow", role: "viewer", tag: "Queues",
		summary: "Who is in a queue, and who is behind its capacity", codes: []string{"unknown_queue", "invalid_limit"},
	}, func(ctx context.Context, in *overflowInput) (*struct{ Body queue.Places }, error) {
		places, err := queues.InQueue(ctx, in.Name, in.Limit)
		return &struct{ Body queue.Places }{places}, err
	})
	register(s, operation{
		id: "get-counts", method: http.MethodGet, path: "/counts", role: "viewer", tag: "Queues",
		summary: "How long the lists are, counted every few seconds",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body countsBody }, error) {
		counts, err := queues.Counts(ctx)
		return &struct{ Body countsBody }{countsBody{counts}}, err
	})
}
