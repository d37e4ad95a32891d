package api

import (
	"context"
	"net/http"

	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/session"
)

type eventsInput struct {
	Cursor string `query:"cursor" doc:"The next of the answer before; tail starts behind the newest event"`
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"Most events"`
}

func (s *server) eventRoutes() {
	register(s, operation{
		id: "list-events", method: http.MethodGet, path: "/events", role: "viewer", tag: "Events",
		summary: "The log of events, the oldest first",
		description: "Ask again with `next` to follow the log. Each event comes once; one whose transaction took longer than that of a later one " +
			"comes after it.",
		codes: []string{"invalid_cursor", "invalid_filter"},
	}, func(ctx context.Context, in *eventsInput) (*struct{ Body order.Events }, error) {
		events, err := s.Orders.Events(ctx, in.Cursor, in.Limit)
		return &struct{ Body order.Events }{events}, err
	})
}

type sessionsInput struct {
	Agent string `query:"agent" doc:"Name of an agent"`
	Ended bool   `query:"ended" doc:"Those that ended as well"`
	PageInput
}

func (s *server) sessionRoutes() {
	register(s, operation{
		id: "list-sessions", method: http.MethodGet, path: "/sessions", role: "viewer", tag: "Agents",
		summary: "Sessions of agents, newest first", codes: []string{"invalid_cursor", "invalid_filter"},
	}, func(ctx context.Context, in *sessionsInput) (*struct{ Body session.Page }, error) {
		page, err := session.List(ctx, s.DB, session.Filter{Agent: in.Agent, Ended: in.Ended, Cursor: in.Cursor, Limit: in.Limit})
		return &struct{ Body session.Page }{page}, err
	})
}
