package api

import (
	"context"
	"net/http"
)

// What people decide about orders. Each answers with the order as it stands
// then.

// Because is the part of a body that says why.
type Because struct {
	Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Why; recorded"`
}

type reasonInput struct {
	OrderPath
	Body *Because
}

func (in *reasonInput) reason() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Reason
}

type suspendInput struct {
	OrderPath
	Body *struct {
		Because
		Kill bool `json:"kill,omitempty" doc:"Suspend a running order at once instead of after its step"`
	}
}

type resolveInput struct {
	OrderPath
	Body struct {
		Because
		Action string `json:"action" doc:"Attention: resume, skip, cancel. Dead: retry, skip, cancel"`
	}
}

type assignInput struct {
	OrderPath
	Body struct {
		Because
		Queue *string `json:"queue" nullable:"true" doc:"Name of the queue; null removes the assignment"`
	}
}

type moveInput struct {
	OrderPath
	Body struct {
		Because
		To    string `json:"to" doc:"first, last, before or after"`
		Other string `json:"other,omitempty" doc:"Id or ref:REFERENCE of the order that before and after mean"`
	}
}

func (s *server) decisionRoutes() {
	decision(s, "cancel", "Cancel an order; a running one is stopped first", nil,
		func(ctx context.Context, id int64, in *reasonInput) error {
			return s.Orders.Cancel(ctx, id, personOf(ctx), in.reason())
		})
	decision(s, "suspend", "Suspend an order; a running one after its step, or at once", []string{"not_suspendable", "order_running"},
		func(ctx context.Context, id int64, in *suspendInput) error {
			if in.Body == nil {
				return s.Orders.Suspend(ctx, id, false, personOf(ctx), "")
			}
			return s.Orders.Suspend(ctx, id, in.Body.Kill, personOf(ctx), in.Body.Reason)
		})
	decision(s, "resume", "Put a suspended order back in line at its position", []string{"not_suspended"},
		func(ctx context.Context, id int64, in *reasonInput) error {
			return s.Orders.Resume(ctx, id, personOf(ctx), in.reason())
		})
	decision(s, "resolve", "Decide about an order in attention or dead; needs a reason",
		[]string{"reason_required", "invalid_action", "not_in_attention", "not_dead", "nothing_to_skip"},
		func(ctx context.Context, id int64, in *resolveInput) error {
			return s.Orders.Resolve(ctx, id, in.Body.Action, personOf(ctx), in.Body.Reason)
		})
	decision(s, "release", "Let an order go ahead of its predecessors in its key; needs a reason",
		[]string{"reason_required", "nothing_to_release", "order_running"},
		func(ctx context.Context, id int64, in *reasonInput) error {
			return s.Orders.Release(ctx, id, personOf(ctx), in.reason())
		})
	decision(s, "assign", "Assign a queue to an order, or none", []string{"unknown_queue", "order_running"},
		func(ctx context.Context, id int64, in *assignInput) error {
			queue := ""
			if in.Body.Queue != nil {
				queue = *in.Body.Queue
			}
			if queue == "-" {
				queue = ""
			}
			return s.Orders.Assign(ctx, id, queue, personOf(ctx), in.Body.Reason)
		})
	decision(s, "move", "Move a waiting order within its queue",
		[]string{"invalid_move", "not_waiting", "order_running", "different_queue"},
		func(ctx context.Context, id int64, in *moveInput) error {
			var other int64
			if in.Body.Other != "" {
				var err error
				if other, err = s.Orders.ID(ctx, in.Body.Other); err != nil {
					return err
				}
			}
			return s.Orders.Move(ctx, id, in.Body.To, other, personOf(ctx), in.Body.Reason)
		})
}

// named is an input that names an order.
type named interface{ name() string }

func (in *OrderPath) name() string { return in.Order }

// decision adds the route of one decision.
func decision[I any, P interface {
	*I
	named
}](s *server, action, summary string, codes []string, decide func(context.Context, int64, *I) error) {
	register(s, operation{
		id: action + "-order", method: http.MethodPost, path: "/orders/{order}/" + action, role: "operator", tag: "Decisions",
		summary: summary, codes: append([]string{"order_not_found", "order_final"}, codes...),
	}, func(ctx context.Context, in *I) (*orderBody, error) {
		id, err := s.Orders.ID(ctx, P(in).name())
		if err != nil {
			return nil, err
		}
		if err := decide(ctx, id, in); err != nil {
			return nil, err
		}
		return s.orderNow(ctx, id)
	})
}
