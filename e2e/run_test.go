package e2e_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/siding-dev/siding/client"
)

var (
	//go:embed testdata/run.yaml
	runDefinitions string
	//go:embed testdata/job.sh
	runJob []byte
)

// realRun is the run under way.
type realRun struct {
	*testing.T
	*installation
	jobs    string // directory that the jobs write to
	orders  []*planned
	byID    map[int64]*planned
	viewer  *client.Client
	person  *client.Client
	started time.Time
}

// TestRealRun: 300 orders of 20 keys, 100 of them with an attachment, through
// two agents and two controllers that are killed meanwhile. Every order ends as
// planned, and in the order of its key.
func TestRealRun(t *testing.T) {
	t.Parallel()
	s := install(t, 2)
	r := &realRun{
		T: t, installation: s, jobs: t.TempDir(), orders: plan(), byID: map[int64]*planned{},
		viewer: s.client("viewer"), person: s.client("operator"), started: time.Now(),
	}
	for _, dir := range []string{"keys", "locks"} {
		if err := os.Mkdir(filepath.Join(r.jobs, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.write("job.sh", runJob)
	s.apply(strings.ReplaceAll(runDefinitions, "@DIR@", r.jobs))
	s.startAgent("a1", 4, 0)
	s.startAgent("a2", 4, 1)
	watch := watchInvariants(t, s)

	r.add()
	r.phase("added")
	uploads := r.uploadEarly()
	r.killAgent()
	r.phase("agent killed and back")
	r.killController()
	r.phase("controller killed and back")
	r.drainAgent()
	r.phase("agent drained and back")
	r.resolveDead()
	r.uploadLate()
	r.phase("dead orders resolved, late attachments sent")
	if err := uploads.Wait(); err != nil {
		t.Fatal(err)
	}
	r.resolveWrong()
	r.resolveNever()
	r.phase("people have decided")
	r.awaitEnd()
	r.phase("all ended")

	watch()
	r.verify()
	r.figures()
	for _, name := range []string{"a1", "a2"} {
		s.agents[name].signal(t, syscall.SIGTERM)
		s.agents[name].ends(t)
	}
	for _, p := range s.controllers {
		p.signal(t, syscall.SIGTERM)
		p.ends(t)
	}
}

// phase logs how far the run is.
func (r *realRun) phase(what string) {
	r.Helper()
	r.Logf("%5.1fs %s; orders: %s", time.Since(r.started).Seconds(), what,
		strings.Join(r.rows(`SELECT state || ' ' || count(*) FROM siding_report.orders GROUP BY state ORDER BY state`), ", "))
}

func (r *realRun) write(name string, text []byte) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.jobs, name), text, 0o600); err != nil {
		r.Fatal(err)
	}
}

// awaitJob waits until the job of an order has written its process number into
// a file.
func (r *realRun) awaitJob(p *planned, file string) (pid int) {
	r.Helper()
	awaitFor(r.T, patience, func() string {
		o := r.order(r.viewer, "ref:"+p.ref())
		why, err := r.viewer.Why(r.Context(), "ref:"+p.ref())
		return fmt.Sprintf("%s runs its job; it is %s (%s), attempt %d, and waits for%s (%v)", p.ref(), o.State, o.Word, o.Attempt, obstacles(why), err)
	}, func() bool {
		text, err := os.ReadFile(filepath.Join(r.jobs, file))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// at finds an order by key and rank.
func (r *realRun) at(key, rank int) *planned { return r.orders[rank*keys+key] }

// withFate lists the orders with one of the fates.
func (r *realRun) withFate(fates ...fate) []*planned {
	var found []*planned
	for _, p := range r.orders {
		if slices.Contains(fates, p.fate) {
			found = append(found, p)
		}
	}
	return found
}

func (r *realRun) withMode(mode string) []*planned {
	var found []*planned
	for _, p := range r.orders {
		if p.mode == mode {
			found = append(found, p)
		}
	}
	return found
}

// add adds the orders, in calls that go to both controllers in turn.
func (r *realRun) add() {
	r.Helper()
	clients := []*client.Client{r.client("submitter", 0, 1), r.client("submitter", 1, 0)}
	const perCall = 50
	for n := 0; n < len(r.orders); n += perCall {
		part := r.orders[n:min(n+perCall, len(r.orders))]
		orders := make([]client.NewOrder, len(part))
		for i, p := range part {
			orders[i] = p.order(r.T)
		}
		added, err := clients[n/perCall%2].AddMany(r.Context(), orders)
		if err != nil {
			r.Fatalf("add: %v", err)
		}
		for i, a := range added {
			part[i].id = a.ID
			r.byID[a.ID] = part[i]
		}
	}
}

// uploadEarly sends what is sent at once, right or wrong, in the background.
func (r *realRun) uploadEarly() *errgroup.Group {
	work := &errgroup.Group{}
	work.SetLimit(4)
	clients := []*client.Client{r.client("submitter", 0, 1), r.client("submitter", 1, 0)}
	todo := r.withFate(early, wrongMended, wrongCancelled, wrongLeft)
	group := &errgroup.Group{}
	group.Go(func() error {
		for i, p := range todo {
			work.Go(func() error {
				if p.fate != early {
					return r.uploadWrong(clients[i%2], p)
				}
				return r.upload(clients[i%2], p, bytes.NewReader(p.content()))
			})
		}
		return work.Wait()
	})
	return group
}

// upload sends an attachment. A controller that was killed may have taken it
// before it could say so.
func (r *realRun) upload(c *client.Client, p *planned, body io.ReadSeeker) error {
	_, err := c.Upload(r.Context(), "ref:"+p.ref(), "scan", body, int64(p.size))
	if refused, ok := problem(err); ok && refused.Code == "attachment_complete" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("upload for %s: %w", p.ref(), err)
	}
	return nil
}

func (r *realRun) uploadWrong(c *client.Client, p *planned) error {
	content := p.wrong()
	_, err := c.Upload(r.Context(), "ref:"+p.ref(), "scan", bytes.NewReader(content), int64(len(content)))
	if refused, ok := problem(err); !ok || refused.Code != "attachment_check_failed" {
		return fmt.Errorf("upload of wrong bytes for %s: got %w, want attachment_check_failed", p.ref(), err)
	}
	return nil
}

// killAgent kills a1 while a job is running that has left a process outside its
// group. The next start ends that one before it takes part again.
func (r *realRun) killAgent() {
	r.Helper()
	stuck := r.withMode("stuck")[0]
	job := r.awaitJob(stuck, "stuck")
	escaped := r.awaitJob(stuck, "escaped")
	r.awaitWhy(r.viewer, "ref:"+r.at(stuck.key, 1).ref(), "key_held", fmt.Sprint(stuck.id))

	r.agents["a1"].kill(r.T)
	await(r.T, "the guard ends the job of the killed agent", func() bool { return !alive(job) })
	if !alive(escaped) {
		r.Fatal("the process outside the group has ended by itself: nothing would be shown")
	}
	if o := r.order(r.viewer, "ref:"+stuck.ref()); o.State != "running" {
		r.Fatalf("the job's order is %s while nobody knows of the agent's end, want running", o.State)
	}
	r.startAgent("a1", 4, 0)
	if alive(escaped) {
		r.Errorf("the agent has a session while process %d of its last one lives", escaped)
	}
	r.awaitState(r.viewer, "ref:"+stuck.ref(), "finished")
	if lost := r.rows(`SELECT FROM siding_report.runs WHERE order_id = $1 AND outcome = 'lost'`, stuck.id); len(lost) != 1 {
		r.Errorf("the stuck order was lost %d times, want once", len(lost))
	}
}

// killController kills the first controller in the middle of an upload. The
// other one takes the upload, and everything else.
func (r *realRun) killController() {
	r.Helper()
	p := r.withFate(interrupted)[0]
	halfway := &signalling{ReadSeeker: bytes.NewReader(p.content()), at: int64(p.size) / 2, reached: make(chan struct{})}
	sent := make(chan error, 1)
	go func() { sent <- r.upload(r.client("submitter", 0, 1), p, halfway) }()
	select {
	case <-halfway.reached:
	case err := <-sent:
		r.Fatalf("the upload ended before its middle: %v", err)
	}
	r.controllers[0].kill(r.T)
	if err := <-sent; err != nil {
		r.Fatal(err)
	}
	if halfway.rewound() == 0 {
		r.Error("the upload was not interrupted")
	}
	// With one controller left, work goes on.
	other := r.withFate(late)[0]
	r.awaitWhy(r.viewer, "ref:"+other.ref(), "attachment_pending", "scan")
	if err := r.upload(r.client("submitter", 0, 1), other, bytes.NewReader(other.content())); err != nil {
		r.Fatal(err)
	}
	r.awaitState(r.viewer, "ref:"+other.ref(), "finished")
	r.awaitState(r.viewer, "ref:"+p.ref(), "finished")
	r.startController(0)
}

// signalling tells when a body was read to some point.
type signalling struct {
	io.ReadSeeker
	at, read int64
	reached  chan struct{}
	once     sync.Once
	mu       sync.Mutex
	seeks    int
}

// Read implements io.Reader. At the point it waits for nothing: what follows is
// half of a big attachment.
func (s *signalling) Read(p []byte) (int, error) {
	n, err := s.ReadSeeker.Read(p)
	if s.read += int64(n); s.read >= s.at {
		s.once.Do(func() { close(s.reached) })
	}
	return n, err
}

// Seek implements io.Seeker.
func (s *signalling) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		s.mu.Lock()
		s.seeks++
		s.mu.Unlock()
	}
	return s.ReadSeeker.Seek(offset, whence)
}

// rewound says how often the body was sent anew.
func (s *signalling) rewound() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seeks - 1
}

// drainAgent ends a2 in order while a job is running: the job ends, and the
// attempt counts.
func (r *realRun) drainAgent() {
	r.Helper()
	slow := r.withMode("slow")[0]
	job := r.awaitJob(slow, "slow")
	session := r.session("a2")
	r.agents["a2"].signal(r.T, syscall.SIGTERM)
	await(r.T, "only the slow job is left of the agent", func() bool {
		page, err := r.viewer.Sessions(r.Context(), "a2", false, "", 1)
		if err != nil {
			r.Fatal(err)
		}
		return len(page.Sessions) == 1 && page.Sessions[0].Running == 1
	})
	if !alive(job) || !r.agents["a2"].running() {
		r.Fatal("the agent didn't wait for its job")
	}
	r.awaitWhy(r.viewer, "ref:"+r.at(slow.key, 1).ref(), "key_held", fmt.Sprint(slow.id))
	r.write("go", nil)
	r.agents["a2"].ends(r.T)
	if got := r.rows(`SELECT end_reason FROM siding.sessions WHERE session_id = $1`, session); !slices.Equal(got, []string{"(closed)"}) {
		r.Errorf("the drained agent's session ended as %v, want (closed)", got)
	}
	if o := r.order(r.viewer, "ref:"+slow.ref()); o.State == "running" {
		r.Error("the slow order is running while its agent has ended")
	}
	r.startAgent("a2", 4, 1)
}

// uploadLate sends attachments when nothing but them is missing and others,
// added later, have passed.
func (r *realRun) uploadLate() {
	r.Helper()
	c := r.client("submitter")
	passed := r.at(19, 6)
	r.awaitState(r.viewer, "ref:"+passed.ref(), "finished")
	for _, p := range r.withFate(late)[1:] {
		r.awaitWhy(r.viewer, "ref:"+p.ref(), "attachment_pending", "scan")
		behind := r.at(p.key, p.rank+1)
		r.awaitWhy(r.viewer, "ref:"+behind.ref(), "key_held", fmt.Sprint(p.id))
		if err := r.upload(c, p, bytes.NewReader(p.content())); err != nil {
			r.Fatal(err)
		}
	}
}

// resolve decides about an order.
func (r *realRun) resolve(p *planned, action string) {
	r.Helper()
	if _, err := r.person.Resolve(r.Context(), "ref:"+p.ref(), action, "decided by the test"); err != nil {
		r.Fatalf("resolve %s: %v", p.ref(), err)
	}
}

// awaitParked waits until an order is dead or in attention, for a reason.
func (r *realRun) awaitParked(p *planned, state, reason string) {
	r.Helper()
	o := r.awaitState(r.viewer, "ref:"+p.ref(), state)
	if o.Attention == nil || o.Attention.Reason != reason {
		r.Errorf("%s is %s for %+v, want %s", p.ref(), state, o.Attention, reason)
	}
	r.awaitWhy(r.viewer, "ref:"+p.ref(), state, reason)
}

// resolveDead retries one, skips one and cancels one.
func (r *realRun) resolveDead() {
	r.Helper()
	for i, p := range r.withMode("doomed") {
		r.awaitParked(p, "dead", "attempts_used_up")
		r.awaitWhy(r.viewer, "ref:"+r.at(p.key, p.rank+1).ref(), "key_held", fmt.Sprint(p.id))
		action := []string{"retry", "skip", "cancel"}[i]
		if action == "retry" {
			r.write(fmt.Sprintf("repaired-%d", p.id), nil)
		}
		r.resolve(p, action)
	}
}

// resolveWrong sends the right bytes for some, and cancels others.
func (r *realRun) resolveWrong() {
	r.Helper()
	c := r.client("submitter")
	for _, p := range r.withFate(wrongMended, wrongCancelled, wrongLeft) {
		r.awaitParked(p, "attention", "attachment_check_failed")
		switch p.fate {
		case wrongMended:
			if err := r.upload(c, p, bytes.NewReader(p.content())); err != nil {
				r.Fatal(err)
			}
			if o := r.order(r.viewer, "ref:"+p.ref()); o.State != "attention" {
				r.Errorf("%s is %s before anybody has resolved it", p.ref(), o.State)
			}
			r.resolve(p, "resume")
		case wrongCancelled:
			r.resolve(p, "cancel")
		}
	}
}

// resolveNever does what is planned about those whose attachment didn't come in
// time.
func (r *realRun) resolveNever() {
	r.Helper()
	c := r.client("submitter")
	for _, p := range r.withFate(neverMended, neverCancelled, neverReleased, neverLeft) {
		r.awaitParked(p, "attention", "attachment_wait_limit")
		switch p.fate {
		case neverMended:
			if err := r.upload(c, p, bytes.NewReader(p.content())); err != nil {
				r.Fatal(err)
			}
			if o := r.order(r.viewer, "ref:"+p.ref()); o.State != "attention" || !o.Attachments[0].Late {
				r.Errorf("%s is %s with attachments %+v, want attention and late", p.ref(), o.State, o.Attachments)
			}
			r.resolve(p, "resume")
		case neverCancelled:
			r.resolve(p, "cancel")
		case neverReleased:
			r.release(p)
			r.resolve(p, "cancel")
		}
	}
}

// release lets the successor of an order go ahead of it, and nobody else.
func (r *realRun) release(p *planned) {
	r.Helper()
	before, next, third := r.at(p.key, p.rank-1), r.at(p.key, p.rank+1), r.at(p.key, p.rank+2)
	r.awaitState(r.viewer, "ref:"+before.ref(), "finished")
	r.awaitWhy(r.viewer, "ref:"+next.ref(), "key_held", fmt.Sprint(p.id))
	if _, err := r.person.Release(r.Context(), "ref:"+next.ref(), "decided by the test"); err != nil {
		r.Fatalf("release %s: %v", next.ref(), err)
	}
	r.awaitState(r.viewer, "ref:"+next.ref(), "finished")
	r.awaitWhy(r.viewer, "ref:"+third.ref(), "key_held", fmt.Sprint(p.id))
}

// awaitEnd waits until every order is as planned.
func (r *realRun) awaitEnd() {
	r.Helper()
	var open []string
	awaitFor(r.T, patience, func() string { return "every order as planned; not yet:\n" + strings.Join(open, "\n") }, func() bool {
		open = nil
		for o, err := range r.viewer.EachOrder(r.Context(), client.OrderFilter{}) {
			if err != nil {
				r.Fatal(err)
			}
			p, reason := r.byID[o.ID], ""
			if o.Attention != nil {
				reason = o.Attention.Reason
			}
			if p == nil {
				r.Fatalf("nobody added order %d", o.ID)
			}
			if o.State != p.state || reason != p.reason {
				open = append(open, fmt.Sprintf("%s (%s, %s) is %s %s, not %s %s", p.ref(), p.keyName(), p.mode, o.State, reason, p.state, p.reason))
			}
		}
		return len(open) == 0
	})
}
