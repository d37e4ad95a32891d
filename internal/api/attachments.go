package api

import (
	"context"
	"net/http"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/definition"
)

// AttachmentPath is how requests name an attachment.
type AttachmentPath struct {
	OrderPath
	Name string `path:"name" doc:"Name of the attachment"`
}

// check refuses what can't be a name, before anything is looked up.
func (in *AttachmentPath) check() error { return checkAttachment(in.Name) }

func checkAttachment(name string) error {
	if err := definition.CheckName(name); err != nil {
		p := newProblem("invalid_attachment", shorten(err.Error()))
		p.Hint = "A name has 1 to 128 letters, digits, dots, underscores and hyphens, and starts with a letter or digit."
		return p
	}
	return nil
}

type attachmentsBody struct {
	Attachments []attachment.Info `json:"attachments"`
}

type expectInput struct {
	OrderPath
	Body struct {
		Because
		Name   string `json:"name"`
		Size   *int64 `json:"size,omitempty" minimum:"0" doc:"Size in bytes"`
		SHA256 string `json:"sha256,omitempty" doc:"SHA-256 in hexadecimal"`
	}
}

type discardInput struct {
	AttachmentPath
	Reason string `query:"reason" doc:"Why; required, recorded"`
}

func (s *server) attachmentRoutes() {
	register(s, operation{
		id: "list-attachments", method: http.MethodGet, path: "/orders/{order}/attachments", role: "viewer", tag: "Attachments",
		summary: "Attachments of an order", codes: []string{"order_not_found"},
	}, func(ctx context.Context, in *OrderPath) (*struct{ Body attachmentsBody }, error) {
		id, err := s.Orders.ID(ctx, in.Order)
		if err != nil {
			return nil, err
		}
		return s.attachmentsNow(ctx, id)
	})
	register(s, operation{
		id: "expect-attachment", method: http.MethodPost, path: "/orders/{order}/attachments", role: "submitter", tag: "Attachments",
		summary: "Add an expected attachment to an order that has not started", status: http.StatusCreated,
		codes: []string{"order_not_found", "order_final", "order_running", "order_started", "attachment_exists", "invalid_attachment"},
	}, func(ctx context.Context, in *expectInput) (*struct{ Body attachmentsBody }, error) {
		if err := checkAttachment(in.Body.Name); err != nil {
			return nil, err
		}
		id, err := s.Orders.ID(ctx, in.Order)
		if err != nil {
			return nil, err
		}
		expected := attachment.Expected{Name: in.Body.Name, Size: in.Body.Size, SHA256: in.Body.SHA256}
		if err := s.Attachments.Expect(ctx, id, expected, personOf(ctx), in.Body.Reason); err != nil {
			return nil, err
		}
		return s.attachmentsNow(ctx, id)
	})
	register(s, operation{
		id: "complete-attachment", method: http.MethodPost, path: "/orders/{order}/attachments/{name}/complete", role: "submitter", tag: "Attachments",
		summary: "Mark an attachment complete that states neither size nor hash and has no bytes",
		codes: []string{
			"order_not_found", "order_final", "attachment_not_found", "attachment_needs_bytes", "attachment_uploading", "invalid_attachment",
		},
	}, func(ctx context.Context, in *AttachmentPath) (*struct{ Body attachmentsBody }, error) {
		id, err := s.attachmentOf(ctx, in)
		if err != nil {
			return nil, err
		}
		if err := s.Attachments.Complete(ctx, id, in.Name, personOf(ctx)); err != nil {
			return nil, err
		}
		return s.attachmentsNow(ctx, id)
	})
	register(s, operation{
		id: "discard-attachment", method: http.MethodDelete, path: "/orders/{order}/attachments/{name}", role: "operator", tag: "Attachments",
		summary: "Throw the bytes of an attachment away; needs a reason",
		codes:   []string{"order_not_found", "order_final", "order_running", "attachment_not_found", "reason_required", "invalid_attachment"},
	}, func(ctx context.Context, in *discardInput) (*struct{ Body attachmentsBody }, error) {
		id, err := s.attachmentOf(ctx, &in.AttachmentPath)
		if err != nil {
			return nil, err
		}
		if err := s.Attachments.Discard(ctx, id, in.Name, personOf(ctx), in.Reason); err != nil {
			return nil, err
		}
		return s.attachmentsNow(ctx, id)
	})
}

func (s *server) attachmentOf(ctx context.Context, in *AttachmentPath) (int64, error) {
	if err := in.check(); err != nil {
		return 0, err
	}
	return s.Orders.ID(ctx, in.Order)
}

func (s *server) attachmentsNow(ctx context.Context, id int64) (*struct{ Body attachmentsBody }, error) {
	list, err := s.Attachments.List(ctx, id)
	return &struct{ Body attachmentsBody }{attachmentsBody{list}}, err
}
