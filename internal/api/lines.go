package api

import (
	"context"
	"net/http"
	"time"

	"github.com/siding-dev/siding/internal/order"
)

type lineInput struct {
	NamePath
	Body struct {
		Because
		Mode string `json:"mode" doc:"pass, strict, or auto: the facts decide"`
	}
}

func (s *server) lineRoutes() {
	register(s, operation{
		id: "get-line", method: http.MethodGet, path: "/agents/{name}/line", role: "viewer", tag: "Lines",
		summary: "How the line of an agent or cluster treats blocked orders", codes: []string{"unknown_agent"},
	}, func(ctx context.Context, in *NamePath) (*struct{ Body order.Line }, error) {
		return s.lineNow(ctx, in.Name)
	})
	register(s, operation{
		id: "set-line-mode", method: http.MethodPost, path: "/agents/{name}/line", role: "operator", tag: "Lines",
		summary: "Set the mode of a line; needs a reason", codes: []string{"unknown_agent", "invalid_mode", "reason_required"},
	}, func(ctx context.Context, in *lineInput) (*struct{ Body order.Line }, error) {
		if err := s.Orders.SetLineMode(ctx, in.Name, in.Body.Mode, personOf(ctx), in.Body.Reason); err != nil {
			return nil, err
		}
		return s.lineNow(ctx, in.Name)
	})
}

func (s *server) lineNow(ctx context.Context, agent string) (*struct{ Body order.Line }, error) {
	line, err := s.Orders.Line(ctx, agent)
	return &struct{ Body order.Line }{line}, err
}

type pausesBody struct {
	Pauses []order.PauseEntry `json:"pauses"`
}

type pauseInput struct {
	Body struct {
		Because
		Kind  string `json:"kind" doc:"queue, agent, lock or workflow"`
		Name  string `json:"name"`
		Until string `json:"until,omitempty" doc:"Instant (RFC 3339) or duration from now at which it ends by itself; else it lasts until it is ended"`
	}
}

type unpauseInput struct {
	Kind   string `path:"kind" doc:"queue, agent, lock or workflow"`
	Name   string `path:"name"`
	Reason string `query:"reason" doc:"Why; recorded"`
}

func (s *server) pauseRoutes() {
	register(s, operation{
		id: "list-pauses", method: http.MethodGet, path: "/pauses", role: "viewer", tag: "Pauses", summary: "What is paused",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body pausesBody }, error) {
		pauses, err := s.Orders.Pauses(ctx)
		return &struct{ Body pausesBody }{pausesBody{pauses}}, err
	})
	register(s, operation{
		id: "pause", method: http.MethodPost, path: "/pauses", role: "operator", tag: "Pauses",
		summary: "Pause a queue, agent, lock or workflow; needs a reason",
		codes:   []string{"invalid_pause", "reason_required", "unknown_queue", "unknown_agent", "unknown_lock", "unknown_workflow"},
	}, func(ctx context.Context, in *pauseInput) (*struct{ Body pausesBody }, error) {
		var until time.Time
		if in.Body.Until != "" {
			var err error
			if until, err = s.Orders.Instant(ctx, in.Body.Until); err != nil {
				return nil, err
			}
		}
		if err := s.Orders.Pause(ctx, in.Body.Kind, in.Body.Name, until, personOf(ctx), in.Body.Reason); err != nil {
			return nil, err
		}
		pauses, err := s.Orders.Pauses(ctx)
		return &struct{ Body pausesBody }{pausesBody{pauses}}, err
	})
	register(s, operation{
		id: "unpause", method: http.MethodDelete, path: "/pauses/{kind}/{name}", role: "operator", tag: "Pauses",
		summary: "End a pause; what isn't paused stays so",
		codes:   []string{"invalid_pause", "unknown_queue", "unknown_agent", "unknown_lock", "unknown_workflow"},
	}, func(ctx context.Context, in *unpauseInput) (*struct{}, error) {
		return nil, s.Orders.Unpause(ctx, in.Kind, in.Name, personOf(ctx), in.Reason)
	})
}
