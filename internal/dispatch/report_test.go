package dispatch_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/order"
)

var person = order.Person{Name: "test"}

// A lease is checked by order, session and number, whatever the state says;
// what was accepted before is accepted again.
func TestStaleAndRepeatedReports(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("plain", "plain", "plain")
	session, other := r.open("a1"), r.open("a1")
	leases := r.now(session, 3)
	events := value[int](r, `SELECT count(*) FROM siding.events`)
	for name, tt := range map[string]struct {
		session protocol.SessionID
		ref     protocol.LeaseRef
	}{
		"another's lease":    {other, leases[0].LeaseRef},
		"an older lease":     {session, protocol.LeaseRef{Order: ids[0], Lease: leases[0].Lease - 1}},
		"a newer lease":      {session, protocol.LeaseRef{Order: ids[0], Lease: leases[2].Lease + 1}},
		"another's order":    {session, protocol.LeaseRef{Order: ids[0], Lease: leases[1].Lease}},
		"an unknown order":   {session, protocol.LeaseRef{Order: 999, Lease: leases[0].Lease}},
		"an unknown session": {999, leases[0].LeaseRef},
	} {
		for _, outcome := range []protocol.Outcome{protocol.Succeeded, protocol.Failed, protocol.HandedBack} {
			if got := r.report(tt.session, protocol.Report{LeaseRef: tt.ref, Outcome: outcome}); got != "stale_lease" {
				t.Errorf("%s, %s: %s", name, outcome, got)
			}
		}
	}
	for _, id := range ids {
		if got := r.state(id); got != "running" {
			t.Errorf("order %d is %s after stale reports", id, got)
		}
	}
	if n := value[int](r, `SELECT count(*) FROM siding.events`); n != events {
		t.Errorf("stale reports left %d events", n-events)
	}

	mine := []protocol.Report{done(leases[0]), {LeaseRef: leases[1].LeaseRef, Outcome: protocol.Failed}, {LeaseRef: leases[2].LeaseRef, Outcome: protocol.HandedBack}}
	for range 3 {
		if got := r.report(session, mine...); got != "accepted accepted accepted" {
			t.Errorf("one's own reports: %s", got)
		}
	}
	if got := r.report(other, mine...); got != "stale_lease stale_lease stale_lease" {
		t.Errorf("another's reports: %s", got)
	}
	// Also when the order runs again meanwhile: it stays as it is.
	again := r.now(session, 1)
	if got := r.report(session, mine[2]); got != "accepted" || r.state(ids[2]) != "running" || again[0].Order != ids[2] {
		t.Errorf("repeated while it runs again: %s, and the order is %s", got, r.state(ids[2]))
	}
	if n := value[int](r, `SELECT count(*) FROM siding.runs WHERE order_id = ANY ($1)`, ids); n != 2 {
		t.Errorf("%d runs are recorded, want one each of the failed and the handed back one", n)
	}
}

// One bad row in a batch is set aside with its reason; the rest goes on.
func TestBadRowsInABatch(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("plain", "plain", "plain", "plain", "plain", "plain", "plain", "plain")
	session := r.open("a1")
	leases := r.now(session, 8)
	reports := make([]protocol.Report, 8)
	for i, l := range leases {
		reports[i] = done(l)
		reports[i].Outputs = json.RawMessage(`{"n": 1}`)
	}
	reports[1].Outcome = "exploded"
	reports[2].Outputs = json.RawMessage(`{"a": "\u0000"}`)
	reports[4].Message = "zero \x00 and \xff"
	reports[5].Outputs = json.RawMessage(`{"a": 1e999999}`)
	reports[6].Lease = 999
	want := "accepted invalid_report accepted accepted accepted accepted stale_lease accepted"
	if got := r.report(session, reports...); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	states := make([]string, len(ids))
	for i, id := range ids {
		states[i] = r.state(id)
	}
	// What can't be stored makes the attempt fail, as the agent is done with it.
	if diff := cmp.Diff([]string{"finished", "running", "scheduled", "finished", "finished", "scheduled", "running", "finished"}, states); diff != "" {
		t.Error(diff)
	}
	if got := value[string](r, `SELECT message FROM siding.runs WHERE order_id = $1`, ids[2]); !strings.Contains(got, "can't be stored") {
		t.Errorf("message of the failed one: %q", got)
	}
	if got := value[string](r, `SELECT message FROM siding.outcomes WHERE order_id = $1`, ids[4]); got != "zero  and \uFFFD" {
		t.Errorf("message: %q", got)
	}
	if n := value[int](r, `SELECT count(*) FROM siding.step_outputs`); n != 4 {
		t.Errorf("%d outputs are stored, want 4", n)
	}
}

// Reports of many calls at once are written together, each gets its own
// results.
func TestReportsOfManyCalls(t *testing.T) {
	t.Parallel()
	r := setup(t)
	workflows := make([]string, 60)
	for i := range workflows {
		workflows[i] = "plain"
	}
	r.add(workflows...)
	session := r.open("a1")
	leases := r.now(session, 60)
	results := make(chan string)
	for i := range 20 {
		batch := []protocol.Report{done(leases[3*i]), {LeaseRef: leases[3*i+1].LeaseRef, Outcome: "exploded"}, done(leases[3*i+2])}
		go func() {
			got, err := r.dispatch.Report(t.Context(), session, batch)
			for k := range got {
				if got[k].LeaseRef != batch[k].LeaseRef {
					t.Errorf("result %d is of %+v, want %+v", k, got[k].LeaseRef, batch[k].LeaseRef)
				}
			}
			if err != nil {
				t.Error(err)
			}
			results <- words(got)
		}()
	}
	for range 20 {
		if got := <-results; got != "accepted invalid_report accepted" {
			t.Errorf("results: %s", got)
		}
	}
	if got, err := r.dispatch.Report(t.Context(), session, nil); got != nil || err != nil {
		t.Errorf("no reports: %v, %v", got, err)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("plain", "plain", "plain", "plain")
	session, other := r.open("a1"), r.open("a1")
	leases := r.now(session, 3)
	foreign := r.now(other, 1)
	for _, decide := range []error{
		r.orders.Cancel(t.Context(), ids[0], person, "test"),
		r.orders.Suspend(t.Context(), ids[1], true, person, "test"),
		r.orders.Suspend(t.Context(), ids[2], false, person, "test"),
	} {
		if decide != nil {
			t.Fatal(decide)
		}
	}
	old := protocol.LeaseRef{Order: ids[2], Lease: 1 << 40}
	reply, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{
		Session: session, Leases: []protocol.LeaseRef{foreign[0].LeaseRef, leases[1].LeaseRef, leases[2].LeaseRef, old},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.HeartbeatReply{
		// Also what it didn't name; a suspension without kill waits for the step's end.
		Stop: []protocol.StopRequest{{LeaseRef: leases[0].LeaseRef, Reason: "cancel"}, {LeaseRef: leases[1].LeaseRef, Reason: "suspend"}},
		Gone: []protocol.LeaseRef{foreign[0].LeaseRef, old},
	}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Error(diff)
	}
	got := value[[]int64](r, `SELECT array_agg(id ORDER BY id) FROM siding.orders WHERE acknowledged`)
	if diff := cmp.Diff(ids[1:3], got); diff != "" {
		t.Errorf("acknowledged: %s", diff)
	}
	if _, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: session, Draining: true}); err != nil {
		t.Fatal(err)
	}
	if !value[bool](r, `SELECT draining FROM siding.sessions WHERE session_id = $1`, int64(session)) {
		t.Error("the session doesn't drain")
	}
	if _, err := r.dispatch.Heartbeat(t.Context(), protocol.HeartbeatRequest{Session: 999}); !errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("unknown session: %v", err)
	}

	// Stopped on purpose is no attempt.
	got2 := r.report(session, protocol.Report{LeaseRef: leases[0].LeaseRef, Outcome: protocol.Stopped},
		protocol.Report{LeaseRef: leases[1].LeaseRef, Outcome: protocol.Stopped}, done(leases[2]))
	states := r.state(ids[0]) + " " + r.state(ids[1]) + " " + r.state(ids[2])
	if got2 != "accepted accepted accepted" || states != "cancelled suspended finished" {
		t.Errorf("%s; %s", got2, states)
	}
	if n := value[int](r, `SELECT attempt FROM siding.orders WHERE id = $1`, ids[1]); n != 0 {
		t.Errorf("%d attempts of the suspended one", n)
	}
}

// Output is stored once, however often it is sent, and only for a lease that
// runs.
func TestOutput(t *testing.T) {
	t.Parallel()
	r := idle(t)
	ids := r.place("plain", "plain")
	session, other := r.open("a1"), r.open("a1")
	leases := r.now(session, 2)
	chunk := func(l protocol.LeaseRef, stream string, offset int64, data string) protocol.OutputChunk {
		return protocol.OutputChunk{LeaseRef: l, Stream: stream, Offset: offset, Data: []byte(data)}
	}
	send := func(session protocol.SessionID, chunks ...protocol.OutputChunk) {
		t.Helper()
		if err := r.dispatch.Output(t.Context(), session, chunks); err != nil {
			t.Fatal(err)
		}
	}
	read := func(id int64) string {
		return value[string](r, `
			SELECT coalesce(string_agg(stream || start_offset || convert_from(data, 'UTF8'), ' ' ORDER BY stream, start_offset), '')
			FROM siding.output_text WHERE order_id = $1`, id)
	}
	first := []protocol.OutputChunk{
		chunk(leases[0].LeaseRef, "stdout", 0, "one"), chunk(leases[0].LeaseRef, "stderr", 0, "err"), chunk(leases[1].LeaseRef, "stdout", 0, "b"),
	}
	send(session, first...)
	send(session, append(first, chunk(leases[0].LeaseRef, "stdout", 3, "two"))...)
	send(other, chunk(leases[0].LeaseRef, "stdout", 6, "of another"))
	send(session, chunk(protocol.LeaseRef{Order: ids[0], Lease: 999}, "stdout", 6, "of a wrong lease"))
	r.report(session, done(leases[1]))
	send(session, chunk(leases[1].LeaseRef, "stdout", 1, "too late"))
	send(session)
	if got := read(ids[0]); got != "stderr0err stdout0one stdout3two" {
		t.Errorf("first: %s", got)
	}
	if got := read(ids[1]); got != "stdout0b" {
		t.Errorf("second: %s", got)
	}
}

// Only who runs the order gets its attachments.
func TestAttachmentOfALease(t *testing.T) {
	t.Parallel()
	r := idle(t)
	added, err := r.orders.Add(t.Context(), json.RawMessage(`[{"workflow":"plain","attachments":[{"name":"x","content":"aGVsbG8="},{"name":"y"}]}]`), person)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attachment.New(r.db, db.NoWaker{}).Put(t.Context(), added[0].ID, "y", strings.NewReader("world"), 5); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dispatch.Intake(t.Context()); err != nil {
		t.Fatal(err)
	}
	session, other := r.open("a1"), r.open("a1")
	leases := r.now(session, 1)
	if len(leases) != 1 || len(leases[0].Attachments) != 2 || leases[0].Attachments[1].Size != 5 || leases[0].Attachments[1].SHA256 == "" {
		t.Fatalf("leases: %+v", leases)
	}
	lease := leases[0].LeaseRef
	body, err := r.dispatch.Attachment(t.Context(), session, lease, "y", 2)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || string(text) != "rld" {
		t.Errorf("read %q, %v", text, err)
	}
	refused := func(what, code string, session protocol.SessionID, lease protocol.LeaseRef, name string) {
		t.Helper()
		_, err := r.dispatch.Attachment(t.Context(), session, lease, name, 0)
		if refusal, ok := db.AsRefusal(err); !ok || refusal.Code != code {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	refused("another session", "stale_lease", other, lease, "x")
	refused("another lease", "stale_lease", session, protocol.LeaseRef{Order: lease.Order, Lease: lease.Lease + 1}, "x")
	refused("another attachment", "attachment_not_found", session, lease, "z")
	r.report(session, protocol.Report{LeaseRef: lease, Outcome: protocol.Failed})
	refused("a lease that ended", "stale_lease", session, lease, "x")
}
