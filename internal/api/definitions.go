package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// definitionKind has what differs between the kinds.
type definitionKind struct {
	kind   definition.Kind
	plural string
	inUse  []string // codes of refused removals
}

var definitionKinds = []definitionKind{
	{definition.KindQueue, "queues", []string{"queue_in_use", "queue_listed"}},
	{definition.KindLock, "locks", []string{"lock_in_use"}},
	{definition.KindAgent, "agents", []string{"agent_in_use"}},
	{definition.KindWorkflow, "workflows", []string{"workflow_in_use"}},
}

// invalidCodes are those of definitions that can't be applied.
var invalidCodes = []string{
	"invalid_definition", "unknown_queue", "unknown_lock", "unknown_agent", "weight_exceeds_capacity", "lock_cycle",
}

type definitionsBody struct {
	Definitions []catalog.Entry `json:"definitions"`
}

// NamePath is how requests name a definition.
type NamePath struct {
	Name string `path:"name" doc:"Name of the definition"`
}

type getDefinitionInput struct {
	NamePath
	IfNoneMatch string `header:"If-None-Match" doc:"ETag that is known already"`
}

type entryOutput struct {
	Status int
	ETag   string `header:"ETag"`
	Body   any
}

type putDefinitionInput struct {
	NamePath
	ContentType string `header:"Content-Type"`
	IfMatch     string `header:"If-Match" doc:"Apply only if the definition still has this ETag (* : if it exists)"`
	IfNoneMatch string `header:"If-None-Match" doc:"*: apply only if the definition doesn't exist"`
	RawBody     []byte
}

type changeOutput struct {
	Status int
	ETag   string `header:"ETag"`
	Body   catalog.Change
}

type deleteDefinitionInput struct {
	NamePath
	IfMatch string `header:"If-Match" doc:"Remove only if the definition still has this ETag"`
}

func (s *server) definitionRoutes() {
	for _, k := range definitionKinds {
		s.definitionRoutesOf(k)
	}
	register(s, operation{
		id: "apply", method: http.MethodPost, path: "/apply", role: "operator", tag: "Definitions",
		summary: "Apply any number of definitions, all or none",
		description: "The body holds YAML or JSON documents, each with its `kind`. A document replaces the whole definition of its name; " +
			"what it leaves out gets its default; what is the same already changes nothing.",
		codes: invalidCodes, raw: true, content: []string{"application/yaml", "application/json"},
	}, s.apply)
}

func (s *server) definitionRoutesOf(k definitionKind) {
	path, one := "/"+k.plural, "/"+k.plural+"/{name}"
	unknown := "unknown_" + string(k.kind)
	register(s, operation{
		id: "list-" + k.plural, method: http.MethodGet, path: path, role: "viewer", tag: "Definitions", summary: "List " + k.plural,
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body definitionsBody }, error) {
		found, err := s.Catalog.List(ctx, k.kind)
		return &struct{ Body definitionsBody }{definitionsBody{found}}, err
	})
	register(s, operation{
		id: "get-" + string(k.kind), method: http.MethodGet, path: one, role: "viewer", tag: "Definitions",
		summary: "Read a " + string(k.kind), codes: []string{unknown},
	}, func(ctx context.Context, in *getDefinitionInput) (*entryOutput, error) {
		found, err := s.Catalog.Get(ctx, k.kind, in.Name)
		if err != nil {
			return nil, err
		}
		out := &entryOutput{Status: http.StatusOK, ETag: etag(found.Revision), Body: found}
		if in.IfNoneMatch != "" && matches(in.IfNoneMatch, found.Revision) {
			out.Status, out.Body = http.StatusNotModified, nil
		}
		return out, nil
	})
	register(s, operation{
		id: "put-" + string(k.kind), method: http.MethodPut, path: one, role: "operator", tag: "Definitions",
		summary:     "Apply a " + string(k.kind),
		description: "The body is the whole definition; it may leave out kind and name. What it leaves out gets its default.",
		codes:       append([]string{"revision_conflict", "invalid_name"}, invalidCodes...),
		raw:         true, content: []string{"application/json", "application/yaml"},
	}, func(ctx context.Context, in *putDefinitionInput) (*changeOutput, error) {
		return s.putDefinition(ctx, k.kind, in)
	})
	register(s, operation{
		id: "delete-" + string(k.kind), method: http.MethodDelete, path: one, role: "operator", tag: "Definitions",
		summary: "Remove a " + string(k.kind) + " that nothing needs", codes: append([]string{unknown, "revision_conflict"}, k.inUse...),
	}, func(ctx context.Context, in *deleteDefinitionInput) (*struct{}, error) {
		if in.IfMatch != "" {
			if _, err := s.revision(ctx, k.kind, in.Name, in.IfMatch); err != nil {
				return nil, err
			}
		}
		return nil, s.Catalog.Delete(ctx, k.kind, in.Name, personOf(ctx).String())
	})
}

func (s *server) putDefinition(ctx context.Context, kind definition.Kind, in *putDefinitionInput) (*changeOutput, error) {
	if err := definition.CheckName(in.Name); err != nil {
		return nil, newProblem("invalid_name", shorten(err.Error()))
	}
	doc, err := parseOne(kind, in)
	if err != nil {
		return nil, err
	}
	person := personOf(ctx).String()
	var change catalog.Change
	switch {
	case in.IfNoneMatch == "*":
		change, err = s.Catalog.ApplyIf(ctx, doc, 0, person)
	case in.IfNoneMatch != "":
		return nil, newProblem("invalid_request", "If-None-Match of a PUT can only be *")
	case in.IfMatch != "":
		var revision int
		if revision, err = s.revision(ctx, kind, in.Name, in.IfMatch); err == nil {
			change, err = s.Catalog.ApplyIf(ctx, doc, revision, person)
		}
	default:
		var changes []catalog.Change
		if changes, err = s.Catalog.Apply(ctx, []definition.Document{doc}, person); err == nil {
			change = changes[0]
		}
	}
	if err != nil {
		return nil, precondition(err)
	}
	out := &changeOutput{Status: http.StatusOK, ETag: etag(change.Revision), Body: change}
	if change.Action == catalog.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// parseOne reads the one definition of a body, JSON or YAML.
func parseOne(kind definition.Kind, in *putDefinitionInput) (definition.Document, error) {
	if !isYAML(in.ContentType) {
		return definition.ParseJSON(kind, in.Name, in.RawBody)
	}
	docs, err := definition.Parse("", in.RawBody)
	if err != nil {
		return definition.Document{}, err
	}
	if len(docs) != 1 || docs[0].Kind != kind || docs[0].Name() != in.Name {
		p := newProblem("invalid_definition", fmt.Sprintf("the body must be one document of kind %s and name %s", kind, in.Name))
		p.Hint = "POST /apply takes any number of documents."
		return definition.Document{}, p
	}
	return docs[0], nil
}

func isYAML(contentType string) bool { return strings.Contains(strings.ToLower(contentType), "yaml") }

// revision is the one that an If-Match means, if it is that of the definition.
func (s *server) revision(ctx context.Context, kind definition.Kind, name, ifMatch string) (int, error) {
	found, err := s.Catalog.Get(ctx, kind, name)
	if refusal, ok := db.AsRefusal(err); ok && refusal.Status == http.StatusNotFound {
		return 0, newProblem("revision_conflict", fmt.Sprintf("%s %s doesn't exist", kind, name))
	}
	if err != nil {
		return 0, err
	}
	if !matches(ifMatch, found.Revision) {
		p := newProblem("revision_conflict", fmt.Sprintf("%s %s has the ETag %s", kind, name, etag(found.Revision)))
		p.Hint = "Read it again and decide anew."
		return 0, p
	}
	return found.Revision, nil
}

// precondition gives a conflict of revisions the status that HTTP has for it.
func precondition(err error) error {
	if refusal, ok := db.AsRefusal(err); ok && refusal.Code == "revision_conflict" {
		p := refusalProblem(refusal)
		p.Status = http.StatusPreconditionFailed
		return p
	}
	return err
}

// etag is a strong validator: a revision is one content.
func etag(revision int) string { return `"` + strconv.Itoa(revision) + `"` }

// matches says whether a list of ETags, or *, names a revision.
func matches(header string, revision int) bool {
	for one := range strings.SplitSeq(header, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || strings.TrimPrefix(one, "W/") == etag(revision) {
			return true
		}
	}
	return false
}

type applyBody struct {
	Changes []catalog.Change `json:"changes"`
}

func (s *server) apply(ctx context.Context, in *struct{ RawBody []byte }) (*struct{ Body applyBody }, error) {
	docs, err := definition.Parse("", in.RawBody)
	if err != nil {
		return nil, err
	}
	changes, err := s.Catalog.Apply(ctx, docs, personOf(ctx).String())
	return &struct{ Body applyBody }{applyBody{changes}}, err
}
