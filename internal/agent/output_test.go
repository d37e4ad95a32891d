package agent

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

func TestOutputIsStreamedWhileTheJobRuns(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	b := startEnd(t, ctl, nil)
	ref := b.add(protocol.Job{Script: `echo out; echo err >&2; while ! test -e "$CLEANED"; do sleep 0.01; done; echo more`})
	ctl.await(t, "output of a running job", func() bool { return len(ctl.output) == 2 })
	if len(ctl.reports) != 0 {
		t.Fatalf("reports: %+v", ctl.reports)
	}
	touch(t, b.cleaned)
	ctl.report(t, ref)
	if diff := cmp.Diff("out\nmore\n", ctl.stdout(ref)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("err\n", ctl.stream(ref, "stderr")); diff != "" {
		t.Error(diff)
	}
}

func TestOutputCap(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	start(t, ctl, func(cfg *Config) { cfg.OutputCapBytes = 100_000 })
	tests := map[string]struct {
		bytes, note string
	}{
		"below": {bytes: "99999"},
		"at":    {bytes: "100000"},
		"above": {bytes: "100001", note: "\n[siding: output truncated after 100000 bytes]\n"},
		"far":   {bytes: "5000000", note: "\n[siding: output truncated after 100000 bytes]\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ref := ctl.addScript("head -c " + test.bytes + " /dev/zero | tr '\\0' x; echo >&2 end")
			if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
				t.Fatalf("report: %+v", got)
			}
			want := strings.Repeat("x", 100_000) + test.note
			if name == "below" {
				want = want[1:]
			}
			if got := ctl.stdout(ref); got != want {
				t.Errorf("got %d bytes that end with %q", len(got), got[max(len(got)-100, 0):])
			}
			if diff := cmp.Diff("end\n", ctl.stream(ref, "stderr")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A burst that fits into the buffer is kept whole.
func TestBurstIsKept(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	start(t, ctl, nil)
	ref := ctl.addScript("head -c 1000000 /dev/zero | tr '\\0' x")
	ctl.report(t, ref)
	if got := ctl.stdout(ref); got != strings.Repeat("x", 1_000_000) {
		t.Errorf("%d bytes, the last are %q", len(got), got[max(len(got)-100, 0):])
	}
}

// The job writes much more than the buffer holds while the controller takes
// nothing: it isn't held up, and the output says what is missing.
func TestSlowControllerDoesNotHoldUpTheJob(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	jobEnded := make(chan struct{})
	ctl.fail = func(call string) error {
		if call == "output" {
			<-jobEnded
		}
		return nil
	}
	b := startEnd(t, ctl, func(cfg *Config) { cfg.OutputBufferBytes = 4 * maxChunkBytes })
	ref := b.add(protocol.Job{Script: `head -c 500000 /dev/zero | tr '\0' x; echo $$ > "$PIDS"`})
	awaitPIDs(t, b.pids, 1)
	close(jobEnded)
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Fatalf("report: %+v", got)
	}
	got := ctl.stdout(ref)
	note := regexp.MustCompile(`\n\[siding: (\d+) bytes of output dropped: the controller didn't take them in time\]\n`)
	if !note.MatchString(got) || !strings.HasPrefix(got, "xxxx") {
		t.Errorf("%d bytes without the note, the last are %q", len(got), got[max(len(got)-100, 0):])
	}
	if kept := strings.Count(got, "x"); kept >= 500_000 {
		t.Errorf("%d bytes kept", kept)
	}
}

// Output that the controller can't digest is given up, and the report comes.
func TestIndigestibleOutputIsGivenUp(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	ctl.fail = func(call string) error {
		if call == "output" {
			return errTemporary
		}
		return nil
	}
	start(t, ctl, nil)
	ref := ctl.addScript("echo x")
	if got := ctl.report(t, ref); got.Outcome != protocol.Succeeded {
		t.Errorf("report: %+v", got)
	}
}

// All bytes, dropped or sent, give back their room in the buffer.
func TestBufferRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	ctl := newFake()
	cfg := testConfig(t)
	cfg.OutputCapBytes, cfg.OutputBufferBytes = 60_000, 200_000
	cfg = cfg.WithDefaults()
	s := newSession(t.Context(), cfg, ctl, &host{}, protocol.Session{ID: 1}, timeZero)
	ctl.open[1] = true
	ctl.leased[protocol.LeaseRef{Order: 1, Lease: 1}] = true
	st := s.output.newStream(protocol.LeaseRef{Order: 1, Lease: 1}, streamStdout)
	st.add(bytes.Repeat([]byte("x"), 40_000))
	st.add(bytes.Repeat([]byte("x"), 20_000)) // over a quarter of the buffer: dropped
	st.add(bytes.Repeat([]byte("x"), 1))      // over the cap
	s.loops.Go(s.output.loop)
	st.finish(context.Background())
	s.cancel(errSessionClosed)
	s.loops.Wait()
	want := strings.Repeat("x", 40_000) + "\n[siding: 20000 bytes of output dropped: the controller didn't take them in time]\n" +
		"\n[siding: output truncated after 60000 bytes]\n"
	if got := ctl.stdout(st.ref); got != want {
		t.Errorf("%d bytes, the last are %q", len(got), got[max(len(got)-200, 0):])
	}
	if s.output.buffered != 0 {
		t.Errorf("%d bytes of the buffer aren't given back", s.output.buffered)
	}
}

func TestAbandonedOutputGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	s := newSession(t.Context(), testConfig(t).WithDefaults(), newFake(), &host{}, protocol.Session{ID: 1}, timeZero)
	st := s.output.newStream(protocol.LeaseRef{Order: 1, Lease: 1}, streamStdout)
	st.add([]byte("some output"))
	if s.output.buffered == 0 {
		t.Error("output takes no room")
	}
	st.abandon()
	st.add([]byte("more of it"))
	if s.output.buffered != 0 {
		t.Errorf("%d bytes of the buffer aren't given back", s.output.buffered)
	}
}
