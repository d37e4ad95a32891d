package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// SessionPath is how an agent names its session.
type SessionPath struct {
	Session int64 `path:"session" minimum:"1" doc:"The session"`
}

func (in *SessionPath) id() protocol.SessionID { return protocol.SessionID(in.Session) }

// check refuses a body that names another session than the address.
func (in *SessionPath) check(said protocol.SessionID) error {
	if said != 0 && said != in.id() {
		return newProblem("invalid_request", fmt.Sprintf("the address names session %d, the body session %d", in.Session, said))
	}
	return nil
}

type (
	openInput  struct{ Body protocol.OpenRequest }
	openOutput struct{ Body protocol.Session }
	claimInput struct {
		SessionPath
		Body protocol.ClaimRequest
	}
	heartbeatInput struct {
		SessionPath
		Body protocol.HeartbeatRequest
	}
	heartbeatOutput struct{ Body protocol.HeartbeatReply }
	reportsInput    struct {
		SessionPath
		Body agentReports
	}
	chunksInput struct {
		SessionPath
		Body agentOutput
	}
)

type agentReports struct {
	Reports []protocol.Report `json:"reports" maxItems:"10000"`
}

type agentOutput struct {
	Chunks []protocol.OutputChunk `json:"chunks" maxItems:"10000"`
}

type leasesBody struct {
	Leases []protocol.Lease `json:"leases"`
}

type resultsBody struct {
	Results []protocol.ReportResult `json:"results" doc:"One per report, in the order of the request"`
}

// agentRoutes are what agents say (docs/concepts.md, Claim, lease, report).
func (s *server) agentRoutes() {
	at := "/agent/sessions/{session}"
	s.agentOperations(at)
	s.stream(operation{
		id: "get-lease-attachment", method: http.MethodGet, path: at + "/orders/{order}/leases/{lease}/attachments/{name}", role: "agent", tag: "Agent protocol",
		summary: "Bytes of an attachment of an order that the session runs",
		codes: []string{
			"session_gone", "stale_lease", "order_not_found", "attachment_not_found", "attachment_not_complete", "attachment_has_no_bytes",
			"attachment_removed", "invalid_offset", "invalid_attachment", "refused",
		},
	}, func(doc *huma.Operation) {
		doc.Parameters = []*huma.Param{
			pathParam("session", "The session"), pathParam("order", "The order"), pathParam("lease", "The lease"),
			pathParam("name", "Name of the attachment"), queryParam("offset", huma.TypeInteger, "First byte wanted"),
		}
		doc.Responses["200"] = &huma.Response{Description: "The bytes from the offset on. An answer that is cut off is continued by another request.",
			Content: map[string]*huma.MediaType{octets: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}
	}, s.leaseAttachment)

	// Agents and controllers of neighbouring versions work together: a field
	// that one of them doesn't know yet is passed over.
	for name, schema := range s.huma.OpenAPI().Components.Schemas.Map() {
		if strings.HasPrefix(name, agentSchemas) && schema.Type == huma.TypeObject {
			schema.AdditionalProperties = true
		}
	}
}

func (s *server) agentOperations(at string) {
	say := func(id, method, path, summary string, codes ...string) operation {
		return operation{
			id: id, method: method, path: path, role: "agent", tag: "Agent protocol", summary: summary, limit: maxBulk,
			codes: append([]string{"refused"}, codes...),
		}
	}
	open := say("open-session", http.MethodPost, "/agent/sessions", "Open a session", "unknown_agent")
	open.status = http.StatusCreated
	register(s, open, func(ctx context.Context, in *openInput) (*openOutput, error) {
		session, err := s.Controller.OpenSession(ctx, in.Body)
		return &openOutput{session}, err
	})
	claim := say("claim", http.MethodPost, at+"/claim", "Ask for orders; held open up to wait_ms while there are none", "session_gone")
	claim.long = true
	register(s, claim, func(ctx context.Context, in *claimInput) (*struct{ Body leasesBody }, error) {
		if err := in.check(in.Body.Session); err != nil {
			return nil, err
		}
		in.Body.Session = in.id()
		leases, err := s.Controller.Claim(ctx, in.Body)
		if leases == nil {
			leases = []protocol.Lease{}
		}
		return &struct{ Body leasesBody }{leasesBody{leases}}, err
	})
	register(s, say("heartbeat", http.MethodPost, at+"/heartbeat", "Keep the session and its leases", "session_gone"),
		func(ctx context.Context, in *heartbeatInput) (*heartbeatOutput, error) {
			if err := in.check(in.Body.Session); err != nil {
				return nil, err
			}
			in.Body.Session = in.id()
			reply, err := s.Controller.Heartbeat(ctx, in.Body)
			return &heartbeatOutput{reply}, err
		})
	register(s, say("report", http.MethodPost, at+"/reports", "Report the ends of attempts", "session_gone"),
		func(ctx context.Context, in *reportsInput) (*struct{ Body resultsBody }, error) {
			results, err := s.Controller.Report(ctx, in.id(), in.Body.Reports)
			return &struct{ Body resultsBody }{resultsBody{results}}, err
		})
	register(s, say("output", http.MethodPost, at+"/output", "Store what running attempts wrote", "session_gone"),
		func(ctx context.Context, in *chunksInput) (*struct{}, error) {
			return nil, s.Controller.Output(ctx, in.id(), in.Body.Chunks)
		})
	register(s, say("close-session", http.MethodDelete, at, "End a session whose processes have all ended", "session_gone"),
		func(ctx context.Context, in *SessionPath) (*struct{}, error) {
			return nil, s.Controller.CloseSession(ctx, in.id())
		})
}

func (s *server) leaseAttachment(w http.ResponseWriter, r *http.Request) error {
	var numbers [4]int64
	for i, text := range []string{r.PathValue("session"), r.PathValue("order"), r.PathValue("lease"), r.URL.Query().Get("offset")} {
		if i == 3 && text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return newProblem("invalid_request", fmt.Sprintf("%q is not a number", shorten(text)))
		}
		numbers[i] = n
	}
	name := pathValue(r, "name")
	if err := checkAttachment(name); err != nil {
		return err
	}
	lease := protocol.LeaseRef{Order: numbers[1], Lease: numbers[2]}
	body, err := s.Controller.Attachment(r.Context(), protocol.SessionID(numbers[0]), lease, name, numbers[3])
	if err != nil {
		return err
	}
	defer body.Close() // everything was read, or the answer is cut off anyway
	liftDeadlines(w)
	w.Header().Set("Content-Type", octets)
	reading := &noteError{r: body}
	_, err = io.Copy(&movingWriter{ResponseWriter: w, control: http.NewResponseController(w)}, reading)
	if err == nil {
		return nil
	}
	if reading.err != nil {
		s.Logger.WarnContext(r.Context(), "attachment was cut off", "request_id", requestIDOf(r.Context()), "order", lease.Order, "attachment", name, "error", err)
	}
	// The agent must not take what it got for the whole.
	panic(http.ErrAbortHandler)
}

// noteError notes the error of a reader, to tell it from that of the writer.
type noteError struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (n *noteError) Read(p []byte) (int, error) {
	m, err := n.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return m, err
}
