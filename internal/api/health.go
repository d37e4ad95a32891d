package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout is how long the database may take to answer.
const readyTimeout = 2 * time.Second

// healthRoutes are for those who run Siding, and stand beside the API.
func (s *server) healthRoutes() {
	s.declare(operation{method: http.MethodGet, path: "/healthz", role: public})
	s.routes.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n") // the client is gone if it fails
	})
	s.declare(operation{method: http.MethodGet, path: "/readyz", role: public})
	s.routes.Get("/readyz", s.ready)
	if s.Metrics != nil {
		s.declare(operation{method: http.MethodGet, path: "/metrics", role: "viewer"})
		s.routes.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
	}
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	err := s.DB.Pool.Ping(ctx)
	if err == nil && s.Ready != nil {
		err = s.Ready(ctx)
	}
	if err != nil {
		s.Logger.WarnContext(r.Context(), "not ready", "error", err)
		writeProblem(w, newProblem("not_ready", codes["not_ready"].title))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ready\n") // the client is gone if it fails
}
