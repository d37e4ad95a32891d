package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// host is what an agent owns on its machine while it runs: its directories,
// locked, the record of its processes, and the guard. It outlives sessions.
type host struct {
	log      *slog.Logger
	store    *store // nil: no state directory, so no processes
	guard    *guard // nil: no state directory, or a test without it
	workRoot string
	workLock *dirLock
	keepWork bool
	// previous is the session of the last run, whose processes have ended.
	previous protocol.SessionID
}

// openHost takes the agent's directories and ends what the last run left.
func (a *Agent) openHost(ctx context.Context) (*host, error) {
	h := &host{log: a.cfg.Logger, workRoot: a.cfg.WorkRoot, keepWork: a.cfg.KeepWork}
	if a.cfg.StateDir == "" {
		return h, nil
	}
	if err := h.open(ctx, a); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *host) open(ctx context.Context, a *Agent) error {
	var err error
	if h.store, err = openStore(a.cfg.StateDir); err != nil {
		return err
	}
	if h.workLock, err = lockDirectory(h.workRoot); err != nil {
		return err
	}
	last, jobs, err := h.store.lastRun()
	if err != nil {
		return err
	}
	if last.Session != 0 {
		if err := endLeftovers(ctx, h.log, jobs, a.cfg.Grace); err != nil {
			return err
		}
		h.removeSessionDir(last.Session)
		if last.Agent == a.cfg.Name {
			h.previous = last.Session
		}
	}
	if !a.withoutGuard {
		h.guard = newGuard(h.log)
	}
	return nil
}

func (h *host) close() {
	if h.guard != nil {
		h.guard.close()
	}
	if h.workLock != nil {
		h.workLock.release()
	}
	if h.store != nil {
		h.store.close()
	}
}

// canRunProcesses is false for an agent without a state directory.
func (h *host) canRunProcesses() bool { return h.store != nil }

// beginSession records the session before its first process can start.
func (h *host) beginSession(agent string, id protocol.SessionID) error {
	if h.store == nil {
		return nil
	}
	return h.store.begin(sessionRecord{Agent: agent, Session: id})
}

// endSession forgets a session that was closed, so that the next run names no
// previous one.
func (h *host) endSession(id protocol.SessionID) error {
	h.removeSessionDir(id)
	if h.store == nil {
		return nil
	}
	return h.store.end()
}

func (h *host) sessionDir(id protocol.SessionID) string {
	return filepath.Join(h.workRoot, strconv.FormatInt(int64(id), 10))
}

func (h *host) removeSessionDir(id protocol.SessionID) {
	if h.keepWork || h.workRoot == "" {
		return
	}
	if err := removeTree(h.sessionDir(id)); err != nil {
		h.log.Warn("working directories of a session can't be removed", "session", id, "error", err)
	}
}

// intend records that a process is about to start. If the agent dies between
// the fork and started, the next run still finds the process by the run id in
// its environment.
func (h *host) intend(job jobRecord) error {
	h.store.put(job)
	return h.store.flush()
}

// started records the process group of an intended job.
func (h *host) started(job jobRecord) error {
	if h.guard != nil {
		h.guard.add(job.ProcessGroup)
	}
	h.store.put(job)
	return h.store.flush()
}

// ended forgets a job none of whose processes is left. It is called before the
// leader is reaped, so that the guard never holds a number that could belong
// to somebody else. The record goes with the next write: until then it names
// a process that no longer matches.
func (h *host) ended(job jobRecord) {
	if h.guard != nil && job.ProcessGroup != 0 {
		h.guard.remove(job.ProcessGroup)
	}
	h.store.remove(job.LeaseRef)
}

// removeTree removes a directory even if a job has taken away its own rights
// in parts of it. A missing one is no error.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	walkErr := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			if chmodErr := os.Chmod(path, 0o700); chmodErr != nil {
				return chmodErr
			}
			if err != nil { // it couldn't be read before; the next removal sees what is in it
				return removeTree(path)
			}
		}
		return err
	})
	if walkErr != nil && !errors.Is(walkErr, os.ErrNotExist) {
		return fmt.Errorf("open up %s: %w", dir, walkErr)
	}
	return os.RemoveAll(dir)
}
