package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Routes returns the handler with the roles of its routes, by "METHOD PATTERN",
// and the routes that its router has.
func Routes(deps Deps) (handler http.Handler, roles map[string]string, s *server) {
	s = build(deps)
	roles = map[string]string{}
	for route, role := range s.roles {
		roles[route] = string(role)
	}
	return s.router, roles, s
}

// Public is the role of routes that need no token.
const Public = string(public)

// CodeStatus is the status in the table of codes.
func CodeStatus(code string) (int, bool) {
	k, ok := codes[code]
	return k.status, ok
}

// Panic adds a route that panics.
func (s *server) Panic(path string, begin bool) {
	s.declare(operation{method: http.MethodGet, path: path, role: public})
	s.routes.Get(path, func(w http.ResponseWriter, _ *http.Request) {
		if begin {
			_, _ = w.Write([]byte("it begins"))
		}
		panic("a secret of the inside")
	})
}

// Undeclared adds a route without a role.
func (s *server) Undeclared(path string) {
	s.routes.Get(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
}

// Walk calls visit for each route of the router.
func (s *server) Walk(visit func(route string)) error {
	return chi.Walk(s.router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		visit(method + " " + pattern)
		return nil
	})
}
