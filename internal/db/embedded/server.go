//go:build unix

// Package embedded runs a private Postgres server from the binaries that are
// installed on this machine: for dev mode, whose data stays, and for tests,
// whose data is thrown away. The server ends with the process that started it.
//
// It takes connections on the loopback address and on a Unix socket, from
// every local user and without a password: it is no place for data that others
// on the machine may not see.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says how to run the server.
type Config struct {
	// Dir holds the data and stays when the server stops; it is made when it is
	// missing. Empty: a temporary folder, removed in the end.
	Dir string
	// Bin is the folder of the Postgres binaries. Empty: see Find.
	Bin string
	// Port is the loopback port. 0: a free one.
	Port int
	// NoSync doesn't wait for the disk while initdb creates the data; a crash of
	// the machine may then leave it broken.
	NoSync bool
	// Settings are further server settings, such as fsync=off.
	Settings map[string]string
	// StartTimeout limits how long the server may take until it accepts
	// connections, recovery after a crash included. Default: 60 s.
	StartTimeout time.Duration
	// AwaitPrevious limits how long to wait for another server on the same data
	// that may just be ending. Default: 10 s.
	AwaitPrevious time.Duration
}

// Server is a running Postgres server. Its superuser is postgres.
type Server struct {
	binaries  Binaries
	dir       string // the data directory
	socketDir string
	remove    []string // folders that go when the server has stopped
	port      int

	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process has ended
	exitErr  error         // valid once exited is closed
	log      *tail
	watchdog *watchdog
	stopOnce sync.Once
	stopErr  error
}

const (
	pollEvery     = 20 * time.Millisecond
	maxPortRounds = 5
)

// Start creates the data if there is none, starts the server and waits until
// it takes connections. Data of another major version than the binaries' is
// refused and left as it is.
func Start(ctx context.Context, config Config) (*Server, error) {
	if config.StartTimeout == 0 {
		config.StartTimeout = time.Minute
	}
	if config.AwaitPrevious == 0 {
		config.AwaitPrevious = 10 * time.Second
	}
	s, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start private Postgres: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, config Config) (_ *Server, err error) {
	cred, err := account()
	if err != nil {
		return nil, err
	}
	dir, temporary := config.Dir, config.Dir == ""
	if temporary {
		dir, err = os.MkdirTemp("", "siding-pg-")
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return nil, err
	}
	// Short, because the path of a socket has at most some 100 bytes.
	socketDir, err := os.MkdirTemp("", "siding-pg-")
	if err != nil {
		return nil, err
	}
	remove := []string{socketDir}
	if temporary {
		remove = append(remove, dir)
	}
	defer func() {
		if err != nil {
			for _, path := range remove {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
	}()
	for _, path := range []string{dir, socketDir} {
		if err := own(cred, path); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	if err := awaitPrevious(ctx, data, config.AwaitPrevious); err != nil {
		return nil, err
	}
	binaries, err := pick(ctx, config.Bin, data)
	if err != nil {
		return nil, err
	}
	if err := initialise(ctx, cred, binaries, data, config.NoSync); err != nil {
		return nil, err
	}
	for round := 1; ; round++ {
		s := &Server{binaries: binaries, dir: data, socketDir: socketDir, remove: remove, port: config.Port}
		err = s.run(ctx, cred, config)
		if err == nil {
			return s, nil
		}
		// A free port can be taken by another process before we have it.
		taken := s.log != nil && strings.Contains(s.log.String(), "could not bind")
		if config.Port != 0 || !taken || round == maxPortRounds {
			return nil, err
		}
	}
}

// pick chooses binaries that fit the data.
func pick(ctx context.Context, bin, data string) (Binaries, error) {
	major, err := dataMajor(data)
	if err != nil {
		return Binaries{}, err
	}
	var found []Binaries
	if bin != "" {
		b, err := inspect(ctx, bin)
		if err != nil {
			return Binaries{}, err
		}
		found = []Binaries{b}
	} else if found, err = Find(ctx); err != nil {
		return Binaries{}, err
	}
	b, err := choose(found, major)
	if err != nil {
		return Binaries{}, fmt.Errorf("data directory %s: %w", data, err)
	}
	return b, nil
}

// dataMajor returns the major version of a data directory, 0 if there is none.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("data directory %s: PG_VERSION %q: %w", data, text, err)
	}
	return major, nil
}

// initialise creates the data directory. It is made under another name first,
// so that an interrupted initdb leaves nothing that looks like data.
func initialise(ctx context.Context, cred *syscall.Credential, b Binaries, data string, noSync bool) error {
	if major, err := dataMajor(data); err != nil || major != 0 {
		return err
	}
	unfinished := data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	args := []string{"--pgdata=" + unfinished, "--username=postgres", "--locale=C", "--encoding=UTF8", "--auth=trust"}
	if noSync {
		args = append(args, "--no-sync")
	}
	cmd := command(cred, filepath.Dir(data), filepath.Join(b.Dir, "initdb"), args...)
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("initdb: %w%s", err, unreachable(cred, data))
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("initdb: %w: %s%s", errors.Join(ctx.Err(), err), out, unreachable(cred, data))
	}
	return os.Rename(unfinished, data)
}

// unreachable explains the usual reason of failures when we are root: the
// folder lies below one that only root may enter.
func unreachable(cred *syscall.Credential, path string) string {
	if cred == nil {
		return ""
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != cred.Uid {
				return fmt.Sprintf(" (as root, Postgres runs as user id %d, which may not enter %s)", cred.Uid, dir)
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// run starts the server process once and waits until it takes connections.
func (s *Server) run(ctx context.Context, cred *syscall.Credential, config Config) error {
	if s.port == 0 {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		s.port = port
	}
	s.log = &tail{}
	s.cmd = command(cred, s.dir, filepath.Join(s.binaries.Dir, "postgres"), s.arguments(config.Settings)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("%w%s", err, unreachable(cred, s.dir))
	}
	signal := "INT" // a fast shutdown: what was committed is on disk
	if slices.Contains(s.remove, filepath.Dir(s.dir)) {
		signal = "QUIT"
	}
	var err error
	if s.watchdog, err = watch(cred, s.cmd.Process.Pid, signal, s.remove...); err != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // the first error counts
		_ = s.cmd.Wait()                          // as above
		return err
	}
	s.exited = make(chan struct{})
	go func() {
		s.exitErr = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.awaitReady(ctx, config.StartTimeout); err != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // perhaps it has ended already
		<-s.exited
		s.watchdog.dismiss()
		return fmt.Errorf("%w; its log ends: %s", err, s.log)
	}
	return nil
}

func (s *Server) arguments(settings map[string]string) []string {
	args := []string{
		"-D", s.dir, "-p", strconv.Itoa(s.port), "-k", s.socketDir,
		"-c", "listen_addresses=127.0.0.1", "-c", "logging_collector=off", "-c", "log_destination=stderr",
	}
	names := make([]string, 0, len(settings))
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// awaitReady waits until the server says in its pid file that it takes
// connections.
func (s *Server) awaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if f, err := readPidFile(s.dir); err == nil && f.pid == s.cmd.Process.Pid && f.ready {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("the server ended while starting: %w", cmpErr(s.exitErr))
		case <-ctx.Done():
			return fmt.Errorf("the server isn't ready: %w", ctx.Err())
		}
	}
}

// cmpErr gives the clean exit of a server that should run an error's name.
func cmpErr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// URL returns the address of a database of the server, over loopback.
func (s *Server) URL(dbname string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + dbname,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Binaries returns what the server runs from.
func (s *Server) Binaries() Binaries { return s.binaries }

// Exited is closed when the server's process has ended, whatever ended it.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Log returns the last lines of the server's log.
func (s *Server) Log() string { return s.log.String() }

// Stop ends the server: open transactions are rolled back, committed ones are
// kept. When ctx is done first, the server is stopped at once, and recovers at
// its next start. A temporary server's data is removed. Further calls wait for
// the first and return the same.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

func (s *Server) stop(ctx context.Context) error {
	_ = s.cmd.Process.Signal(syscall.SIGINT) // perhaps it has ended already
	var err error
	select {
	case <-s.exited:
		if s.exitErr != nil {
			err = fmt.Errorf("private Postgres ended: %w; its log ends: %s", s.exitErr, s.log)
		}
	case <-ctx.Done():
		err = fmt.Errorf("private Postgres was stopped at once: %w", ctx.Err())
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // as above
		<-s.exited
	}
	s.watchdog.dismiss()
	for _, path := range s.remove {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// freePort asks the kernel for a port that nobody uses.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close() // nothing was sent
	return l.Addr().(*net.TCPAddr).Port, nil
}
