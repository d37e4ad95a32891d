package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const (
	// maxBody bounds a JSON body; maxBulk one that adds many orders or carries
	// what many of them wrote.
	maxBody = 4 << 20
	maxBulk = 16 << 20
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = time.Minute
)

// operation describes one route.
type operation struct {
	id, method, path string // path below Base
	role             role
	tag, summary     string
	description      string
	// codes are those of problems that are this operation's own.
	codes  []string
	status int // of success; default 200, or 204 without a body
	limit  int64
	// long operations are held open while there is nothing to say.
	long bool
	// raw operations take the body as it is; content are its media types.
	raw     bool
	content []string
}

// document is the OpenAPI operation.
func (s *server) document(op operation) huma.Operation {
	if op.limit == 0 {
		op.limit = maxBody
	}
	if op.role != public {
		op.codes = append(op.codes, "unauthorized", "forbidden", "unavailable")
	}
	if op.method != http.MethodGet || strings.Contains(op.path, "{") {
		op.codes = append(op.codes, "invalid_request")
	}
	if op.method == http.MethodPost || op.method == http.MethodPut {
		op.codes = append(op.codes, "body_too_large")
	}
	op.codes = append(op.codes, "internal")
	doc := huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Summary: op.summary, Description: op.description,
		Tags: []string{op.tag}, DefaultStatus: op.status, Responses: map[string]*huma.Response{},
		// Huma takes a body of exactly the maximum for too large.
		MaxBodyBytes: op.limit + 1, BodyReadTimeout: bodyTimeout,
		Extensions:       map[string]any{"x-role": string(op.role)},
		SkipValidateBody: op.raw,
	}
	if op.role != public {
		doc.Security = []map[string][]string{{"token": {}}}
	}
	if op.long {
		doc.BodyReadTimeout = -1
		doc.Middlewares = huma.Middlewares{noDeadlines}
	}
	if op.raw && len(op.content) > 0 {
		doc.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for _, t := range op.content {
			doc.RequestBody.Content[t] = &huma.MediaType{Schema: &huma.Schema{}}
		}
	}
	s.documentProblems(&doc, op.codes)
	return doc
}

// documentProblems adds a response per status that the codes have.
func (s *server) documentProblems(doc *huma.Operation, of []string) {
	schema := s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	byStatus := map[int][]string{}
	for _, code := range of {
		k, ok := codes[code]
		if !ok {
			panic("operation " + doc.OperationID + ": code " + code + " is not in the table")
		}
		byStatus[k.status] = append(byStatus[k.status], code+": "+k.title)
	}
	for status, lines := range byStatus {
		slices.Sort(lines)
		doc.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: strings.Join(slices.Compact(lines), "; "),
			Content:     map[string]*huma.MediaType{problemType: {Schema: schema}},
		}
	}
}

// register adds a route whose bodies are decoded and encoded by huma.
func register[I, O any](s *server, op operation, handle func(context.Context, *I) (*O, error)) {
	op.path = Base + op.path
	s.declare(op)
	huma.Register(s.huma, s.document(op), func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problemOf(ctx, err)
		}
		return out, nil
	})
}

// stream adds a route whose bodies are bytes that must not be held in memory.
func (s *server) stream(op operation, doc func(*huma.Operation), handle func(http.ResponseWriter, *http.Request) error) {
	op.path = Base + op.path
	s.declare(op)
	description := s.document(op)
	doc(&description)
	s.huma.OpenAPI().AddOperation(&description)
	s.routes.MethodFunc(op.method, op.path, func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			writeProblem(w, s.problemOf(r.Context(), err))
		}
	})
}

// declare notes the role of a route.
func (s *server) declare(op operation) {
	if op.role == "" {
		panic("route " + op.method + " " + op.path + " has no role")
	}
	s.roles[op.method+" "+op.path] = op.role
}

// pathParam describes a parameter in the path of a streamed route.
func pathParam(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
}

func queryParam(name, kind, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: kind}}
}
