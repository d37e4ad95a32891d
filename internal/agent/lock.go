package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const lockFileName = "agent.lock"

// dirLock is the lock of a directory. The system releases it when the process
// ends, however it ends.
type dirLock struct{ file *os.File }

// lockDirectory makes a private directory and takes its lock.
func lockDirectory(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make agent directory: %w", err)
	}
	path := filepath.Join(dir, lockFileName)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock agent directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			holder := make([]byte, 20)
			n, _ := file.Read(holder) // an unreadable holder only makes the message shorter
			return nil, fmt.Errorf("%w: process %s holds %s", ErrAlreadyRunning, holder[:n], path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0) // only for the message above
	}
	return &dirLock{file: file}, nil
}

// release gives the lock up. Closing the file alone wouldn't while a child of
// this program stands between fork and exec, as it shares the open file.
func (l *dirLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN) // closing it is the second way
	l.file.Close()
}
