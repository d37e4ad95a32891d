package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Files in the state directory.
const (
	sessionFileName = "session.json"
	jobsFileName    = "jobs.json"
)

// sessionRecord is the session file. It is written durably (fsync of file and
// directory), twice per session.
type sessionRecord struct {
	Agent   string             `json:"agent"`
	Session protocol.SessionID `json:"session"`
	// Boot identifies the run of the operating system. After a reboot no
	// process is left and the job file means nothing.
	Boot string `json:"boot"`
}

// jobRecord is one entry of the job file: a process group that runs, or is
// about to. The job file is replaced atomically but not fsynced: a crash of
// the machine ends the processes it names, a crash of the agent loses no write.
// It is rewritten twice per job, so the difference is felt.
type jobRecord struct {
	protocol.LeaseRef
	// RunID is the SIDING_RUN_ID in the environment of the job's processes.
	RunID string `json:"run_id"`
	// ProcessGroup is 0 until the process has started.
	ProcessGroup int `json:"process_group,omitempty"`
	// StartTime is the leader's, in the system's own unit, so that a number
	// that was given to another process since isn't taken for the job.
	StartTime string `json:"start_time,omitempty"`
}

// store keeps the records of one state directory, which it holds locked.
type store struct {
	dir  string
	lock *dirLock
	boot string

	mu      sync.Mutex
	jobs    map[protocol.LeaseRef]jobRecord
	version uint64 // of jobs

	writing sync.Mutex
	written uint64 // version in the file
}

// openStore makes and locks the directory.
func openStore(dir string) (*store, error) {
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	return &store{dir: dir, lock: lock, boot: bootID(), jobs: map[protocol.LeaseRef]jobRecord{}}, nil
}

func (s *store) close() { s.lock.release() }

// lastRun reads what the last run left: its session (0 if it was closed or
// there was none) and the jobs whose processes may still live.
func (s *store) lastRun() (sessionRecord, []jobRecord, error) {
	var last sessionRecord
	found, err := s.read(sessionFileName, &last)
	if err != nil || !found || last.Boot != s.boot {
		return last, nil, err
	}
	var jobs []jobRecord
	if _, err := s.read(jobsFileName, &jobs); err != nil {
		return last, nil, err
	}
	return last, jobs, nil
}

func (s *store) read(name string, into any) (found bool, err error) {
	path := filepath.Join(s.dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read agent state: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("agent state %s is damaged (remove it once no job of the last run is running): %w", path, err)
	}
	return true, nil
}

// begin starts the record of a session without jobs.
func (s *store) begin(session sessionRecord) error {
	session.Boot = s.boot
	s.mu.Lock()
	clear(s.jobs)
	s.version++
	s.mu.Unlock()
	if err := s.flush(); err != nil {
		return err
	}
	text, err := json.Marshal(session)
	if err != nil {
		return fmt.Errorf("encode session record: %w", err)
	}
	return s.write(sessionFileName, text, true)
}

// end removes the records.
func (s *store) end() error {
	for _, name := range []string{sessionFileName, jobsFileName} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove agent state: %w", err)
		}
	}
	return s.syncDir()
}

func (s *store) put(job jobRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.LeaseRef] = job
	s.version++
}

func (s *store) remove(ref protocol.LeaseRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, ref)
	s.version++
}

// flush returns when every change made before the call is in the file. Calls
// that wait for the same write share it.
func (s *store) flush() error {
	s.mu.Lock()
	wanted := s.version
	s.mu.Unlock()

	s.writing.Lock()
	defer s.writing.Unlock()
	if s.written >= wanted {
		return nil
	}
	s.mu.Lock()
	jobs, version := slices.Collect(maps.Values(s.jobs)), s.version
	s.mu.Unlock()
	text, err := json.Marshal(jobs)
	if err != nil {
		return fmt.Errorf("encode job records: %w", err)
	}
	if err := s.write(jobsFileName, text, false); err != nil {
		return err
	}
	s.written = version
	return nil
}

// write replaces a file atomically.
func (s *store) write(name string, text []byte, durable bool) error {
	path := filepath.Join(s.dir, name)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write agent state: %w", err)
	}
	_, err = file.Write(text)
	if err == nil && durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil && durable {
		err = s.syncDir()
	}
	if err != nil {
		return fmt.Errorf("write agent state: %w", err)
	}
	return nil
}

func (s *store) syncDir() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync state directory: %w", err)
	}
	return nil
}
