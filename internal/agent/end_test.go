package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// stubborn is a script of three processes in one group that ignore TERM: the
// shell, a child and a grandchild. Each writes its process id to $PIDS.
const stubborn = `trap '' TERM
sh -c 'sh -c "echo \$\$ >> $PIDS; exec sleep 600" & echo $$ >> $PIDS; wait' &
echo $$ >> "$PIDS"
while :; do wait; done`

// polite is a script that ends on TERM, after it has written a file.
const polite = `trap 'echo cleaned > "$CLEANED"; exit 0' TERM
echo $$ >> "$PIDS"
while :; do sleep 0.05; done`

type endBundle struct {
	*runner
	pids, cleaned string
}

func startEnd(t *testing.T, ctl *fakeController, change func(*Config)) endBundle {
	t.Helper()
	dir := t.TempDir()
	return endBundle{runner: start(t, ctl, change), pids: filepath.Join(dir, "pids"), cleaned: filepath.Join(dir, "cleaned")}
}

func (b endBundle) add(job protocol.Job) protocol.LeaseRef {
	job.Name = "job"
	job.Env = map[string]string{"PIDS": b.pids, "CLEANED": b.cleaned}
	return b.ctl.add(protocol.Lease{Job: &job})
}

func TestTimeoutKillsWhoIgnoresTERM(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: stubborn, TimeoutMillis: 3000, GraceMillis: 50})
	pids := awaitPIDs(t, b.pids, 3)
	want := protocol.Report{LeaseRef: ref, Outcome: protocol.TimedOut, ExitCode: code(137), Message: "timed out after 3s"}
	if diff := cmp.Diff(want, ctl.report(t, ref)); diff != "" {
		t.Error(diff)
	}
	awaitDead(t, pids)
}

func TestStopGivesTheGrace(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: polite})
	awaitPIDs(t, b.pids, 1)
	ctl.change(func() { ctl.stop[ref] = "cancel" })
	want := protocol.Report{LeaseRef: ref, Outcome: protocol.Stopped, ExitCode: code(0), Message: "stopped: cancel"}
	if diff := cmp.Diff(want, ctl.report(t, ref)); diff != "" {
		t.Error(diff)
	}
	if found, _ := filepath.Glob(b.cleaned); len(found) == 0 {
		t.Error("the job had no time to clean up")
	}
}

// The shell dies of TERM at once, its child needs the grace.
func TestGraceIsForTheWholeGroup(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: `sh -c 'trap "sleep 0.2; echo cleaned > $CLEANED; exit 0" TERM; echo $$ >> $PIDS; while :; do sleep 0.05; done'; true`})
	awaitPIDs(t, b.pids, 1)
	ctl.change(func() { ctl.stop[ref] = "suspend" })
	got := ctl.report(t, ref)
	want := protocol.Report{LeaseRef: ref, Outcome: protocol.Stopped, ExitCode: code(143), Message: "stopped: suspend"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if found, _ := filepath.Glob(b.cleaned); len(found) == 0 {
		t.Error("the child had no time to clean up")
	}
}

func TestStopKillsAfterTheGrace(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: stubborn, GraceMillis: 50})
	pids := awaitPIDs(t, b.pids, 3)
	ctl.change(func() { ctl.stop[ref] = "cancel" })
	if got := ctl.report(t, ref); got.Outcome != protocol.Stopped || *got.ExitCode != 137 {
		t.Errorf("report: %+v", got)
	}
	awaitDead(t, pids)
}

// A lease that is gone: killed without a grace, not reported, its slot free.
func TestGoneIsKilledAndNotReported(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, func(cfg *Config) { cfg.Processes = 1 })
	ref := b.add(protocol.Job{Script: stubborn})
	pids := awaitPIDs(t, b.pids, 3)
	next := ctl.addScript("true")
	ctl.change(func() { ctl.gone[ref] = true })
	awaitDead(t, pids)
	if got := ctl.report(t, next); got.Outcome != protocol.Succeeded {
		t.Errorf("report of the next: %+v", got)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if len(ctl.reports) != 1 {
		t.Errorf("reports: %+v", ctl.reports)
	}
}

// What a job leaves in its group ends with it, and doesn't hold up its report
// although it holds the output open.
func TestBackgroundProcessesEndWithTheJob(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: `sh -c 'echo $$ >> $PIDS; exec sleep 600' & while ! test -s "$PIDS"; do sleep 0.01; done; echo done`})
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded || ctl.stdout(ref) != "done\n" {
		t.Errorf("report: %+v, output %q", got, ctl.stdout(ref))
	}
	awaitDead(t, awaitPIDs(t, b.pids, 1))
}

// outage makes calls fail between two moments.
type outage struct{ begin, end chan struct{} }

func newOutage() outage { return outage{begin: make(chan struct{}), end: make(chan struct{})} }

func (o outage) fail(string) error {
	select {
	case <-o.end:
		return nil
	default:
	}
	select {
	case <-o.begin:
		return errTemporary
	default:
		return nil
	}
}

// The controller is out of reach for the time to live: the job is killed, and
// when the session turns out to have survived, that is reported.
func TestUnreachableControllerEndsJobs(t *testing.T) {
	t.Parallel()
	ctl, out := newFake(), newOutage()
	ctl.ttl, ctl.fail = 3*time.Second, out.fail
	b := startEnd(t, ctl, func(cfg *Config) { cfg.Processes = 1 })
	ref := b.add(protocol.Job{Script: stubborn})
	pids := awaitPIDs(t, b.pids, 3)
	close(out.begin)
	awaitDead(t, pids)
	close(out.end)
	want := protocol.Report{
		LeaseRef: ref, Outcome: protocol.Failed, ExitCode: code(137),
		Message: "ended by the agent: controller not reached for the session's time to live",
	}
	if diff := cmp.Diff(want, ctl.report(t, ref)); diff != "" {
		t.Error(diff)
	}
	if got := ctl.report(t, ctl.addScript("true")); got.Outcome != protocol.Succeeded {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestUnreachableControllerKeepsJobsIfToldSo(t *testing.T) {
	t.Parallel()
	ctl, out := newFake(), newOutage()
	ctl.ttl, ctl.fail = 3*time.Second, out.fail
	log := newLogWatch("controller not reached for the session's time to live")
	b := startEnd(t, ctl, func(cfg *Config) { cfg.Unreachable, cfg.Logger = KeepJobs, slog.New(log) })
	ref := b.add(protocol.Job{Script: `echo $$ >> "$PIDS"; while ! test -e "$CLEANED"; do sleep 0.01; done`})
	pids := awaitPIDs(t, b.pids, 1)
	close(out.begin)
	log.await(t)
	if !alive(t, pids[0]) {
		t.Error("the job was killed")
	}
	close(out.end)
	touch(t, b.cleaned)
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Errorf("report: %+v", got)
	}
}

// An answer that arrives while the controller counts as unreachable isn't
// carried out: the leases may be lost already.
func TestFencedSessionStartsNothing(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	s := newSession(t.Context(), testConfig(t).WithDefaults(), ctl, &host{}, protocol.Session{ID: 1}, timeZero)
	s.fence()
	if got := s.freeSlots(); got != 0 {
		t.Errorf("%d free slots", got)
	}
	ref := protocol.LeaseRef{Order: 1, Lease: 1}
	s.take([]protocol.Lease{{LeaseRef: ref, Job: &protocol.Job{Script: "true"}}})
	if diff := cmp.Diff([]protocol.Report{{LeaseRef: ref, Outcome: protocol.HandedBack}}, s.reports.next()); diff != "" {
		t.Error(diff)
	}
	s.unfence()
	if got := s.freeSlots(); got != 3 { // one lease isn't settled
		t.Errorf("%d free slots", got)
	}
}

func TestDrainLetsJobsEnd(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: `echo $$ >> "$PIDS"; while ! test -e "$CLEANED"; do sleep 0.01; done`})
	awaitPIDs(t, b.pids, 1)
	b.cancel()
	// The claim that waits ends with the context; nothing is asked for after it.
	late := ctl.addScript("true")
	touch(t, b.cleaned)
	if err := b.wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]protocol.SessionID{1}, ctl.closed); diff != "" {
		t.Error(diff)
	}
	for _, report := range ctl.reports {
		switch {
		case report.LeaseRef == ref && report.Outcome == protocol.Succeeded:
		case report.LeaseRef == late && report.Outcome == protocol.HandedBack: // claimed at the last moment
		default:
			t.Errorf("report: %+v", report)
		}
	}
	if ctl.leased[ref] {
		t.Error("the job's end wasn't reported")
	}
}

func TestDrainEndsJobsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, func(cfg *Config) { cfg.DrainTimeout = -1 })
	ref := b.add(protocol.Job{Script: polite})
	awaitPIDs(t, b.pids, 1)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	want := []protocol.Report{{LeaseRef: ref, Outcome: protocol.Stopped, ExitCode: code(0), Message: "ended by the agent: agent shuts down"}}
	if diff := cmp.Diff(want, ctl.reports); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]protocol.SessionID{1}, ctl.closed); diff != "" {
		t.Error(diff)
	}
}

// What hasn't begun when the agent stops is handed back: here an order whose
// attachment doesn't come.
func TestDrainHandsBackWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	asked := make(chan struct{}, 100)
	ctl.fail = func(call string) error {
		if call != "attachment" {
			return nil
		}
		asked <- struct{}{}
		return errTemporary
	}
	b := startEnd(t, ctl, nil)
	ref := ctl.add(protocol.Lease{Attachments: []protocol.Attachment{{Name: "a", Size: 1}}, Job: &protocol.Job{Name: "job", Script: "true"}})
	<-asked
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	want := []protocol.Report{{LeaseRef: ref, Outcome: protocol.HandedBack, Message: "agent shuts down"}}
	if diff := cmp.Diff(want, ctl.reports); diff != "" {
		t.Error(diff)
	}
}

// Reports that can't be delivered don't hold up the end for ever, and Run says so.
func TestDrainGivesUpReports(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	ctl.fail = func(call string) error {
		if call == "report" {
			return errTemporary
		}
		return nil
	}
	b := startEnd(t, ctl, func(cfg *Config) { cfg.ReportTimeout = 50 * time.Millisecond })
	ctl.addScript("true")
	ctl.await(t, "claim", func() bool { return len(ctl.leased) == 1 })
	if err := b.stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: %v", err)
	}
	if len(ctl.closed) != 0 {
		t.Error("a session with reports left was closed")
	}
}
