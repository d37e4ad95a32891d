// Package api serves Siding over HTTP: REST for people and programs, and the
// protocol of agents (docs/api.md). It holds no rule of the product; it decodes,
// asks a room, and encodes.
//
// Every route has a role, and every error is a problem document (RFC 9457) with
// a stable code. One file per resource.
package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/token"
)

// Base is the path below which everything but health, metrics and the API's own
// description stands.
const Base = "/api/v1"

// Deps is what the server is made of. DB is required; rooms that are left out
// are made from it, without anybody to wake.
type Deps struct {
	DB          *db.DB
	Orders      *order.Orders
	Catalog     *catalog.Catalog
	Attachments *attachment.Attachments
	// Controller is what agents talk to. Without one the routes of agents don't
	// exist.
	Controller protocol.Controller
	// Metrics is what /metrics shows. Without it the route doesn't exist.
	Metrics prometheus.Gatherer
	// Ready says whether this replica should get requests, besides reaching the
	// database. It may be nil.
	Ready func(ctx context.Context) error

	// Tokens are those of the configuration, by name; those in the database
	// hold besides.
	Tokens map[string]ConfigToken
	// AllowLoopback lets requests without a token in, as admin with the name
	// dev, if Listen is a loopback address and nothing looks as if the request
	// came from elsewhere (a proxy, another origin in a browser).
	AllowLoopback bool
	// Listen is the address that the server listens on.
	Listen net.Addr

	// Version is the program's, for the API's description.
	Version string
	// Logger gets what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// server is the API at work.
type server struct {
	Deps
	tokens *token.Tokens
	auth   *authenticator

	router chi.Router // the root
	routes chi.Router // where routes are registered: behind the check of the role
	huma   huma.API
	// roles has the role of every route, by "METHOD PATTERN". A route that is
	// missing here is refused to everybody.
	roles map[string]role
}

// New returns the handler of the whole server. It sets no deadlines for
// requests: the http.Server should set ReadHeaderTimeout and IdleTimeout, and
// may set ReadTimeout and WriteTimeout, which uploads, downloads and long polls
// move or lift for themselves.
func New(deps Deps) http.Handler { return build(deps).router }

func build(deps Deps) *server {
	if deps.Logger == nil {
		deps.Logger = slog.Default()
	}
	if deps.Orders == nil {
		deps.Orders = order.New(deps.DB, db.NoWaker{})
	}
	if deps.Catalog == nil {
		deps.Catalog = catalog.New(deps.DB, db.NoWaker{})
	}
	if deps.Attachments == nil {
		deps.Attachments = attachment.New(deps.DB, db.NoWaker{})
	}
	s := &server{
		Deps:   deps,
		tokens: token.New(deps.DB),
		router: chi.NewRouter(),
		roles:  map[string]role{},
	}
	s.auth = newAuthenticator(s.tokens, deps)

	s.router.Use(s.requestID, s.recover, headers, jsonByDefault, middleware.GetHead)
	s.router.NotFound(s.notFound)
	s.router.MethodNotAllowed(s.methodNotAllowed)
	s.routes = s.router.With(s.authorise)
	s.huma = humachi.New(s.routes, description(deps.Version))

	s.healthRoutes()
	s.descriptionRoute()
	s.orderRoutes()
	s.decisionRoutes()
	s.historyRoutes()
	s.attachmentRoutes()
	s.uploadRoutes()
	s.definitionRoutes()
	s.whyRoutes()
	s.queueRoutes()
	s.lineRoutes()
	s.pauseRoutes()
	s.eventRoutes()
	s.sessionRoutes()
	s.tokenRoutes()
	if deps.Controller != nil {
		s.agentRoutes()
	}
	return s
}

func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	p := newProblem("not_found", "there is nothing at "+shorten(r.URL.Path))
	p.Hint = "GET /openapi.json lists what there is."
	writeProblem(w, p)
}

func (s *server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
		known := method
		if method == "HEAD" {
			known = "GET"
		}
		if s.router.Match(chi.NewRouteContext(), known, path) {
			w.Header().Add("Allow", method)
		}
	}
	writeProblem(w, newProblem("method_not_allowed", r.Method+" is not possible here"))
}
