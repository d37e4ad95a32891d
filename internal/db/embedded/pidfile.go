//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pidFile is what a running server writes about itself into its data
// directory.
type pidFile struct {
	pid   int
	ready bool // takes connections
}

func readPidFile(data string) (pidFile, error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidFile{}, fmt.Errorf("postmaster.pid: %w", err)
	}
	return pidFile{pid: pid, ready: len(lines) >= 8 && strings.TrimSpace(lines[7]) == "ready"}, nil
}

// awaitPrevious waits for a server on the same data that is just ending, for
// example because the process that started it was killed. One that doesn't end
// is somebody else's.
func awaitPrevious(ctx context.Context, data string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		f, err := readPidFile(data)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if errors.Is(syscall.Kill(f.pid, 0), syscall.ESRCH) {
			return nil // left by a crash; Postgres removes it
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("data directory %s is in use by process %d", data, f.pid)
		}
	}
}
