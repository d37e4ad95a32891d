package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
)

type requestIDKey struct{}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID gives each request an id, the client's own if it sends a sane one,
// and says it in the answer.
func (s *server) requestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !requestIDPattern.MatchString(id) {
			id = uuid.NewString()
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// recover turns a panic into a problem without details. If the answer has begun
// it is cut off, so that nobody takes it for whole.
func (s *server) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Keeps Unwrap, so that deadlines can be moved behind it.
		began := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			id := requestIDOf(r.Context())
			s.Logger.ErrorContext(r.Context(), "panic", "request_id", id, "method", r.Method, "path", r.URL.Path,
				"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			if began.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			p := newProblem("internal", codes["internal"].title)
			p.RequestID = id
			writeProblem(began, p)
		}()
		next.ServeHTTP(began, r)
	})
}

// headers are those of every answer.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// jsonByDefault takes what `curl -d` sends for what it means: it calls every body
// a form, unless told otherwise, and there are no forms here.
func jsonByDefault(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
			r.Header.Set("Content-Type", "application/json")
		}
		next.ServeHTTP(w, r)
	})
}

// noDeadlines lifts the server's deadlines from a request that may take long.
func noDeadlines(ctx huma.Context, next func(huma.Context)) {
	_, w := humachi.Unwrap(ctx)
	liftDeadlines(w)
	next(ctx)
}

func liftDeadlines(w http.ResponseWriter) {
	// Not every ResponseWriter has deadlines; one that hasn't needs no lifting.
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}
