// Package server puts a controller together: the database, the dispatcher, the
// sweepers and the API. It is all that `controller serve` runs, so that a test
// or another program can run the whole in its own process.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/metrics"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/token"
)

const (
	// Bodies and answers have deadlines of the API's own: they may take long.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute

	// leftoverUploads is when an upload of an ended order counts as given up.
	leftoverUploads = time.Hour
	// sweepAttachments is how often attachments are looked through.
	sweepAttachments = time.Minute
	// dropBatch bounds the attachments that one look deletes.
	dropBatch = 1000
	// refreshCounts is how often a count is due; what takes long is done less often.
	refreshCounts = 2 * time.Second
)

// Options are what the configuration doesn't say.
type Options struct {
	// Migrate brings the schema to this binary's version first. Otherwise an
	// older schema is an error.
	Migrate bool
	// Version is the program's.
	Version string
	// Logger gets the log. Default: slog.Default().
	Logger *slog.Logger
}

// Server is a whole controller. Make one by Open, then Run it, then Close it.
type Server struct {
	config  config.Config
	log     *slog.Logger
	db      *db.DB
	catalog *catalog.Catalog
	files   *attachment.Attachments
	queues  *queue.Queues
	agents  *draining
	waker   *dispatch.Dispatch
	keeper  *keeper.Keeper
	metrics *prometheus.Registry

	listener net.Listener
	http     *http.Server
	running  atomic.Bool
}

// Open connects to the database, checks its schema, and listens, but answers
// nobody before Run. What it opened is closed again when it fails.
func Open(ctx context.Context, c config.Config, o Options) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if err := prepare(ctx, c.Database, o.Migrate, o.Logger); err != nil {
		return nil, err
	}
	s := &Server{config: c, log: o.Logger}
	if s.db, err = db.Open(ctx, c.Database.DB()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.db.Close()
		}
	}()
	s.metrics = prometheus.NewRegistry()
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		metrics.NewState(s.db, o.Logger))
	s.waker = dispatch.New(s.db, dispatch.Config{
		Observer: metrics.NewDispatch(s.metrics), ListenURL: c.Database.DirectURL(), SessionTTL: c.Sessions.TTL, HeartbeatInterval: c.Sessions.Heartbeat, Logger: o.Logger,
	})
	s.agents = newDraining(s.waker)
	s.keeper = keeper.New(s.db, s.waker, keeper.Config{SessionTTL: c.Sessions.TTL, Logger: o.Logger})
	s.catalog = catalog.New(s.db, s.waker)
	s.queues = queue.New(s.db)
	if s.files, err = attachment.NewWith(s.db, s.waker, attachment.Config{MaxBytes: int64(c.Attachments.MaxSize)}); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, "tcp", c.Server.Listen); err != nil {
		return nil, fmt.Errorf("server.listen: %w", err)
	}
	s.http = &http.Server{
		Handler:           api.New(s.deps(o.Version)),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

func (s *Server) deps(version string) api.Deps {
	tokens := map[string]api.ConfigToken{}
	for _, t := range s.config.Auth.Tokens {
		tokens[t.Name] = api.ConfigToken{Role: token.Role(t.Role), SHA256: t.SHA256}
	}
	return api.Deps{
		DB: s.db, Orders: order.New(s.db, s.waker), Catalog: s.catalog, Attachments: s.files, Controller: s.agents,
		Metrics: s.metrics, Ready: s.ready, Tokens: tokens, AllowLoopback: s.config.Auth.DevLoopback, Listen: s.listener.Addr(),
		Version: version, Logger: s.log,
	}
}

func (s *Server) ready(context.Context) error {
	if !s.running.Load() {
		return errors.New("the controller is starting or stopping")
	}
	return nil
}

// Run works until ctx ends, then lets requests under way end, and returns nil.
// It returns an error when a part fails for good.
func (s *Server) Run(ctx context.Context) error {
	// The parts outlive ctx until the last request has its answer.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	group.Go(func() error { return s.waker.Run(work) })
	group.Go(func() error { return s.keeper.Run(work) })
	group.Go(func() error { s.every(work, sweepAttachments, "attachments", s.sweepAttachments); return nil })
	group.Go(func() error { s.every(work, refreshCounts, "counts", s.refreshCounts); return nil })
	group.Go(s.serve)
	group.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
		case <-work.Done(): // a part has failed
		}
		s.running.Store(false)
		s.log.Info("controller is stopping", "url", s.URL())
		return s.shutdown(context.WithoutCancel(ctx))
	})
	s.running.Store(true)
	s.log.Info("controller is running", "url", s.URL(), "schema", s.db.Schema.Name())
	return group.Wait()
}

func (s *Server) serve() error {
	var err error
	if s.config.Server.TLSCert != "" {
		err = s.http.ServeTLS(s.listener, s.config.Server.TLSCert, s.config.Server.TLSKey)
	} else {
		err = s.http.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// shutdown takes no new requests and waits for those under way. Agents that
// wait for work are sent away at once.
func (s *Server) shutdown(ctx context.Context) error {
	s.agents.drain()
	limit, cancel := context.WithTimeout(ctx, s.config.Server.ShutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(limit)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests were cut off", "after", s.config.Server.ShutdownTimeout)
		err = s.http.Close()
	}
	if err != nil {
		return fmt.Errorf("stop serving: %w", err)
	}
	return nil
}

// every does a duty again and again until ctx ends.
func (s *Server) every(ctx context.Context, pause time.Duration, name string, duty func(context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := duty(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("sweeper failed", "duty", name, "error", err)
		}
	}
}

// sweepAttachments deletes bytes that nobody needs any more.
func (s *Server) sweepAttachments(ctx context.Context) error {
	if _, err := s.files.SweepUploads(ctx, leftoverUploads); err != nil {
		return err
	}
	_, err := s.files.SweepEnded(ctx, s.config.Attachments.Retention, dropBatch)
	return err
}

// refreshCounts counts the lists that people are shown the length of.
func (s *Server) refreshCounts(ctx context.Context) error {
	_, err := s.queues.RefreshCounts(ctx)
	return err
}

// Close closes what Open opened. Run must have returned, or never been called.
func (s *Server) Close() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) { // Run has closed it
		err = nil
	}
	s.db.Close()
	return err
}

// URL is where the API answers, for programs on this machine.
func (s *Server) URL() string {
	scheme := "http"
	if s.config.Server.TLSCert != "" {
		scheme = "https"
	}
	at := s.listener.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, fmt.Sprint(at.Port))
}

// Controller is what an agent in the same process talks to.
func (s *Server) Controller() protocol.Controller { return s.agents }

// Catalog is the server's catalog.
func (s *Server) Catalog() *catalog.Catalog { return s.catalog }
