package agent

import (
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript reads "+ GROUP" and "- GROUP" lines and kills, when its input
// ends, the groups that were added and not removed. Its input ends when the
// agent does, by whatever means. It ignores the signals that reach a whole
// terminal or service, to be there when the agent has gone.
const guardScript = `trap '' HUP INT QUIT TERM
groups=' '
while read -r change group; do
	case $change in
	+) groups="$groups$group " ;;
	-) groups="${groups%% $group *} ${groups#* $group }" ;;
	esac
done
for group in $groups; do
	kill -s KILL -- "-$group" 2>/dev/null
done
:`

// guard is a child process that kills the jobs' process groups when the agent
// dies without having ended them. Without it, jobs of a killed agent would run
// on until the agent's next start, while the controller gives their orders to
// others.
type guard struct {
	log *slog.Logger

	mu     sync.Mutex
	groups map[int]struct{}
	cmd    *exec.Cmd // nil until the first job
	input  io.WriteCloser
}

func newGuard(log *slog.Logger) *guard {
	return &guard{log: log, groups: map[int]struct{}{}}
}

func (g *guard) add(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[group] = struct{}{}
	g.tell("+", group)
}

func (g *guard) remove(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, group)
	g.tell("-", group)
}

// tell sends one change, or starts a guard that knows all groups.
func (g *guard) tell(change string, group int) {
	if g.cmd != nil {
		_, err := fmt.Fprintf(g.input, "%s %d\n", change, group)
		if err == nil {
			return
		}
		g.log.Warn("guard process has ended, starting another", "error", err)
		g.stop()
	}
	if len(g.groups) == 0 {
		return
	}
	if err := g.start(); err != nil {
		// The next start of the agent still ends its leftovers.
		g.log.Error("guard process can't be started: jobs would outlive a killed agent until its next start", "error", err)
	}
}

func (g *guard) start() error {
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("guard input: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start guard: %w", err)
	}
	g.cmd, g.input = cmd, input
	for group := range g.groups {
		if _, err := fmt.Fprintf(input, "+ %d\n", group); err != nil {
			g.stop()
			return fmt.Errorf("tell guard: %w", err)
		}
	}
	return nil
}

// stop lets the guard end; the caller has removed the groups or takes care of
// them otherwise.
func (g *guard) stop() {
	g.input.Close()
	_ = g.cmd.Wait() // its exit code says nothing
	g.cmd, g.input = nil, nil
}

// close ends the guard. Groups that it still knows are killed.
func (g *guard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil {
		g.stop()
	}
}
