package embedded

import (
	"context"
	"errors"
	"syscall"
)

// FindIn lets tests search other places than this machine's.
func FindIn(ctx context.Context, path string, folders []string) ([]Binaries, error) {
	return find(ctx, path, folders)
}

// Choose lets tests choose among installations that this machine hasn't got.
func Choose(found []Binaries, major int) (Binaries, error) { return choose(found, major) }

// Pid returns the process id of the server.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Folders returns where the server keeps its data and its socket.
func (s *Server) Folders() []string { return []string{s.dir, s.socketDir} }

// Gone reports whether there is no such process.
func Gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
