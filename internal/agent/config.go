package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Defaults of [Config].
const (
	DefaultOutputCapBytes    = 1 << 20
	DefaultOutputBufferBytes = 16 << 20
	DefaultGrace             = 10 * time.Second
	DefaultDrainTimeout      = 30 * time.Second
	DefaultReportTimeout     = 10 * time.Second
	DefaultCallTimeout       = 15 * time.Second
	DefaultClaimWait         = 20 * time.Second
)

const (
	maxProcesses = 100_000
	maxClaimWait = 60 * time.Second // the protocol's limit
)

// Handler runs a job inside the agent's own program instead of in a process.
// ctx ends when the attempt has to end (timeout, stop, shutdown, lost lease);
// the handler must then return soon, since nothing can end it from outside, and
// its process slot stays taken until it does. Outputs are a JSON object or nil.
// An error, or a panic, makes the attempt Failed with the error as its message.
type Handler func(ctx context.Context, lease protocol.Lease) (outputs json.RawMessage, err error)

// UnreachablePolicy says what happens to running jobs when the controller
// hasn't acknowledged a heartbeat for the session's time to live.
type UnreachablePolicy string

const (
	// EndJobs kills the jobs: their leases may be lost, and another agent may
	// run the orders. An attempt that was ended so is reported Failed if the
	// session turns out to have survived.
	EndJobs UnreachablePolicy = "end"
	// KeepJobs lets them go on. Safe for jobs that can run twice at the same
	// time; jobs then survive an outage of all controllers of any length,
	// which loses no session.
	KeepJobs UnreachablePolicy = "keep"
)

// Config is the configuration of an [Agent]. Durations and sizes that are zero
// get the default stated with them.
type Config struct {
	// Name is the name of the agent's definition. Required.
	Name string

	// Processes is how many orders run at once, 1 to 100,000. Required.
	Processes int

	// StateDir holds the lock file and what is needed to end, at the next
	// start, the processes of a run that was killed. It must outlive the agent
	// and belong to it alone. Empty: the agent runs only Handlers and steps
	// without a job, and rejects jobs that need a process. See DefaultStateDir.
	StateDir string

	// WorkRoot is where the jobs' private directories are made, as
	// <session>/<order>-<lease>. Default: "work" in StateDir.
	WorkRoot string

	// KeepWork keeps the private directories after the attempts, for
	// debugging. Nothing ever removes them then.
	KeepWork bool

	// OutputCapBytes is how much of each of stdout and stderr is kept, per
	// attempt. The rest is dropped, which the last line then says.
	// Default 1 MiB.
	OutputCapBytes int64

	// OutputBufferBytes bounds the output that waits to be sent, over all
	// attempts. A job is never held up by a slow controller: what doesn't fit is
	// dropped, and the output says so. Default 16 MiB.
	OutputBufferBytes int64

	// Grace is the time between TERM and KILL where the job states none.
	// Default 10 s.
	Grace time.Duration

	// DrainTimeout is how long running jobs may go on after Run's context has
	// ended; those that remain are then ended by TERM, Grace, KILL.
	// Default 30 s; a negative value ends them at once.
	DrainTimeout time.Duration

	// ReportTimeout is how long Run tries to deliver the last reports, after
	// the last job has ended. Default 10 s.
	ReportTimeout time.Duration

	// CallTimeout bounds each call to the controller; for a claim it is added
	// to ClaimWait. Default 15 s.
	CallTimeout time.Duration

	// ClaimWait is how long the controller may hold a claim while there is
	// nothing to do, at most 60 s. Default 20 s.
	ClaimWait time.Duration

	// PassEnv names environment variables of the agent that jobs see. They get
	// only PATH, HOME, LANG and TMPDIR besides, so that the agent's secrets
	// stay its own.
	PassEnv []string

	// Shell runs scripts: the script is appended as the last argument.
	// Default: /bin/sh -ec, so a script ends at its first failing command.
	Shell []string

	// Unreachable says what happens to running jobs when the controller can't
	// be reached for the session's time to live. Default EndJobs.
	Unreachable UnreachablePolicy

	// Handlers run jobs by name inside this program. A handler goes before the
	// job's script or argv.
	Handlers map[string]Handler

	// Logger gets the agent's log. Default: slog.Default().
	Logger *slog.Logger
}

// DefaultStateDir is the directory for an agent's state: below
// /var/lib/siding/agents for root, else below $XDG_STATE_HOME, else below
// ~/.local/state.
func DefaultStateDir(name string) (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/siding/agents", name), nil
	}
	root := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(root) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("default state directory: %w", err)
		}
		root = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(root, "siding", "agents", name), nil
}

// WithDefaults is the configuration with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.WorkRoot == "" && c.StateDir != "" {
		c.WorkRoot = filepath.Join(c.StateDir, "work")
	}
	setDefault(&c.OutputCapBytes, DefaultOutputCapBytes)
	setDefault(&c.OutputBufferBytes, DefaultOutputBufferBytes)
	setDefault(&c.Grace, DefaultGrace)
	setDefault(&c.DrainTimeout, DefaultDrainTimeout)
	setDefault(&c.ReportTimeout, DefaultReportTimeout)
	setDefault(&c.CallTimeout, DefaultCallTimeout)
	setDefault(&c.ClaimWait, DefaultClaimWait)
	setDefault(&c.Unreachable, EndJobs)
	setDefault(&c.Logger, slog.Default())
	if len(c.Shell) == 0 {
		c.Shell = []string{"/bin/sh", "-ec"}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports everything that is wrong with a configuration whose
// defaults are filled in, all errors joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Name != "", "name: required")
	check(!strings.ContainsAny(c.Name, "/\x00"), "name: %q has a character that names don't have", c.Name)
	check(c.Processes >= 1 && c.Processes <= maxProcesses, "processes: %d is not between 1 and %d", c.Processes, maxProcesses)
	check(c.StateDir != "" || c.WorkRoot == "", "work root: needs a state directory besides")
	check(c.OutputCapBytes > 0, "output cap: %d bytes is negative", c.OutputCapBytes)
	check(c.OutputBufferBytes >= maxChunkBytes, "output buffer: %d bytes is less than one piece of output (%d)", c.OutputBufferBytes, maxChunkBytes)
	check(c.Grace > 0, "grace: %s is negative", c.Grace)
	check(c.ReportTimeout > 0, "report timeout: %s is negative", c.ReportTimeout)
	check(c.CallTimeout > 0, "call timeout: %s is negative", c.CallTimeout)
	check(c.ClaimWait > 0 && c.ClaimWait <= maxClaimWait, "claim wait: %s is not between 0 and %s", c.ClaimWait, maxClaimWait)
	check(c.Unreachable == EndJobs || c.Unreachable == KeepJobs, "unreachable: %q is neither %q nor %q", c.Unreachable, EndJobs, KeepJobs)
	check(len(c.Shell) > 0 && c.Shell[0] != "", "shell: empty")
	for _, name := range c.PassEnv {
		check(validEnvName(name), "pass env: %q is not the name of an environment variable", name)
		check(!strings.HasPrefix(name, envPrefix), "pass env: %q: variables that begin with %s are the agent's own", name, envPrefix)
	}
	for name, handler := range c.Handlers {
		check(handler != nil, "handlers: %q has no function", name)
	}
	return errors.Join(errs...)
}
