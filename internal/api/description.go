package api

import (
	"encoding/json"
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// description is huma's configuration: the frame of the OpenAPI document.
func description(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	config := huma.DefaultConfig("Siding", version)
	config.Info.Description = "A workflow controller in Postgres. Every problem is a document of RFC 9457 with a stable `code`. " +
		"`x-role` of an operation is the role that it needs; `admin` may do everything, `operator` what `submitter` may, and " +
		"`submitter` what `viewer` may."
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "A token; On-Behalf-Of may name the person that it acts for."},
	}
	// The document is served by descriptionRoute, which declares a role; nothing
	// else of huma's own routes, and no $schema fields, are wanted.
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil
	config.RejectUnknownQueryParameters = true
	return config
}

// schemaName names the schema of a type: with the room it is from, since rooms
// have types of the same name.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	room := path.Base(t.PkgPath())
	switch {
	case t.Name() == "" || room == "api" || !strings.Contains(t.PkgPath(), "/internal/"):
		return name
	case room == "protocol":
		room = agentSchemas
	default:
		room = strings.ToUpper(room[:1]) + room[1:]
	}
	if strings.HasPrefix(name, room) {
		return name
	}
	return room + name
}

// agentSchemas begins the names of what agents and controllers exchange.
const agentSchemas = "Agent"

func (s *server) descriptionRoute() {
	s.declare(operation{method: http.MethodGet, path: "/openapi.json", role: public})
	s.routes.Get("/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		body, err := json.Marshal(s.huma.OpenAPI())
		if err != nil {
			writeProblem(w, s.failure(r.Context(), err))
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(body) // the client is gone if it fails
	})
}
