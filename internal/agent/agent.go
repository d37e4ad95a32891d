package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// ErrAlreadyRunning means that another agent uses the same state directory or
// work root, or that Run was called twice.
var ErrAlreadyRunning = errors.New("agent is already running")

// Agent runs the orders of one agent definition. Create it with New.
type Agent struct {
	cfg        Config
	controller protocol.Controller
	running    atomic.Bool

	// withoutGuard leaves out the guard process, for the tests of what remains
	// when it is killed as well.
	withoutGuard bool
}

// New makes an agent that works for controller. It fills in the defaults of
// cfg and returns everything that is wrong with it, all errors joined.
func New(cfg Config, controller protocol.Controller) (*Agent, error) {
	cfg = cfg.WithDefaults()
	err := cfg.Validate()
	if controller == nil {
		err = errors.Join(err, errors.New("controller: required"))
	}
	if err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	cfg.Logger = cfg.Logger.With("agent", cfg.Name)
	return &Agent{cfg: cfg, controller: controller}, nil
}

// Run works until ctx ends and returns after the drain: nil when every attempt
// was reported and the session closed. It returns early when the controller
// refuses the agent for good (protocol.ErrRefused), when processes of the last
// run can't be ended, or when the state directory can't be used (for example
// ErrAlreadyRunning). A lost session isn't an error: Run ends its jobs and opens
// a new one.
func (a *Agent) Run(ctx context.Context) error {
	if !a.running.CompareAndSwap(false, true) {
		return fmt.Errorf("run agent %s: %w", a.cfg.Name, ErrAlreadyRunning)
	}
	defer a.running.Store(false)
	if err := a.runSessions(ctx); err != nil {
		return fmt.Errorf("run agent %s: %w", a.cfg.Name, err)
	}
	return nil
}

func (a *Agent) runSessions(ctx context.Context) error {
	host, err := a.openHost(ctx)
	if err != nil {
		return err
	}
	defer host.close()

	previous := host.previous
	retry := newBackoff()
	for {
		opened, asked, err := a.open(ctx, previous)
		if err != nil || opened.ID == 0 {
			return err
		}
		if err := host.beginSession(a.cfg.Name, opened.ID); err != nil {
			return errors.Join(err, a.controller.CloseSession(context.WithoutCancel(ctx), opened.ID))
		}
		s := newSession(ctx, a.cfg, a.controller, host, opened, asked)
		err = s.run(ctx)
		if !errors.Is(err, protocol.ErrSessionGone) {
			return err
		}
		a.cfg.Logger.Warn("session has ended, its jobs were killed", "session", opened.ID)
		if ctx.Err() != nil {
			return nil
		}
		previous = opened.ID
		if time.Since(asked) > opened.TTL() {
			retry.reset()
		}
		if !retry.pause(ctx) {
			return nil
		}
	}
}

// open opens a session, however long that takes, and says when it asked for
// it. The session is zero when ctx ended first.
func (a *Agent) open(ctx context.Context, previous protocol.SessionID) (protocol.Session, time.Time, error) {
	req := protocol.OpenRequest{Agent: a.cfg.Name, Processes: a.cfg.Processes, Previous: previous, PID: os.Getpid()}
	// The host's name is only shown, so not knowing it is no failure.
	req.Host, _ = os.Hostname()

	retry := newBackoff()
	for ctx.Err() == nil {
		asked := time.Now()
		callCtx, cancel := context.WithTimeout(ctx, a.cfg.CallTimeout)
		opened, err := a.controller.OpenSession(callCtx, req)
		cancel()
		switch {
		case err == nil && (opened.HeartbeatMillis <= 0 || opened.TTLMillis <= opened.HeartbeatMillis):
			return protocol.Session{}, asked, fmt.Errorf("open session: the controller's times make no sense: heartbeat %s, time to live %s",
				opened.Heartbeat(), opened.TTL())
		case err == nil:
			a.cfg.Logger.Info("session opened", "session", opened.ID, "previous", previous, "processes", a.cfg.Processes)
			return opened, asked, nil
		case errors.Is(err, protocol.ErrRefused):
			return protocol.Session{}, asked, fmt.Errorf("open session: %w", err)
		case ctx.Err() != nil:
			return protocol.Session{}, asked, nil
		case errors.Is(err, protocol.ErrSessionGone):
			req.Previous = 0
		}
		pause := retry.next()
		a.cfg.Logger.Warn("session can't be opened", "error", err, "again_in", pause)
		sleep(ctx, pause)
	}
	return protocol.Session{}, time.Time{}, nil
}
