package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/token"
)

func (b *bundle) agent() *client.Agent {
	b.t.Helper()
	a, err := client.NewAgent(client.Config{URLs: []string{b.url}, Token: secret(token.Agent)})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// An agent over HTTP works as one beside the controller: it waits for an order
// by a long poll, gets its attachment, writes output, and reports.
func TestAgentProtocol(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, c, ctx := b.agent(), b.client(token.Operator), t.Context()
	session, err := a.OpenSession(ctx, protocol.OpenRequest{Agent: "a1", Processes: 2, Host: "here", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	if session.TTL() <= 0 || session.Heartbeat() <= 0 {
		t.Errorf("session: %+v", session)
	}
	claim := protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 2, WaitMillis: 30_000}
	type result struct {
		leases []protocol.Lease
		err    error
	}
	waiting := make(chan result, 1)
	go func() {
		leases, err := a.Claim(ctx, claim)
		waiting <- result{leases, err}
	}()
	if _, err := c.Add(ctx, client.NewOrder{
		Workflow: "scanned", Ref: "r", Args: json.RawMessage(`{"n": 1}`), Attachments: []client.NewAttachment{{Name: "scan", Content: []byte("hello world")}},
	}); err != nil {
		t.Fatal(err)
	}
	got := <-waiting
	if got.err != nil || len(got.leases) != 1 {
		t.Fatalf("claim: %+v, %v", got.leases, got.err)
	}
	lease := got.leases[0]
	if lease.Ref != "r" || string(lease.Args) != `{"n":1}` || len(lease.Attachments) != 1 || lease.Attempt != 1 {
		t.Errorf("lease: %+v", lease)
	}
	again, err := a.Claim(ctx, claim)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.leases, again); diff != "" {
		t.Errorf("the same request has another answer: %s", diff)
	}
	body, err := a.Attachment(ctx, session.ID, lease.LeaseRef, "scan", 6)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(text) != "world" {
		t.Errorf("attachment from 6: %q, %v", text, err)
	}
	reply, err := a.Heartbeat(ctx, protocol.HeartbeatRequest{Session: session.ID, Leases: []protocol.LeaseRef{lease.LeaseRef, {Order: 999, Lease: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(protocol.HeartbeatReply{Gone: []protocol.LeaseRef{{Order: 999, Lease: 1}}}, reply); diff != "" {
		t.Errorf("heartbeat: %s", diff)
	}
	chunks := []protocol.OutputChunk{
		{LeaseRef: lease.LeaseRef, Stream: "stdout", Data: []byte("one\n")}, {LeaseRef: lease.LeaseRef, Stream: "stdout", Offset: 4, Data: []byte("two\n")},
		{LeaseRef: lease.LeaseRef, Stream: "stderr", Data: []byte{0xff, 0}},
	}
	for range 2 { // a repeated call changes nothing
		if err := a.Output(ctx, session.ID, chunks); err != nil {
			t.Fatal(err)
		}
	}
	exit := 0
	reports := []protocol.Report{
		{LeaseRef: lease.LeaseRef, Outcome: protocol.Succeeded, ExitCode: &exit, Outputs: json.RawMessage(`{"total": 3}`)},
		{LeaseRef: protocol.LeaseRef{Order: 999, Lease: 1}, Outcome: protocol.Failed},
	}
	want := []protocol.ReportResult{
		{LeaseRef: lease.LeaseRef, Accepted: true}, {LeaseRef: protocol.LeaseRef{Order: 999, Lease: 1}, Code: "stale_lease"},
	}
	for range 2 { // one's own accepted report repeated is answered with success
		results, err := a.Report(ctx, session.ID, reports)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, results); diff != "" {
			t.Errorf("report: %s", diff)
		}
	}
	b.checkOutput(c)
	sessions, err := c.Sessions(ctx, "a1", false, "", 10)
	if err != nil || len(sessions.Sessions) != 1 || sessions.Sessions[0].ID != int64(session.ID) || sessions.Sessions[0].Host != "here" {
		t.Errorf("sessions: %+v, %v", sessions, err)
	}
	if _, err := a.Attachment(ctx, session.ID, lease.LeaseRef, "scan", 0); !errors.Is(err, protocol.ErrRefused) || code(err) != "stale_lease" {
		t.Errorf("attachment of a lease that ended: %v", err)
	}
	if err := a.CloseSession(ctx, session.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Heartbeat(ctx, protocol.HeartbeatRequest{Session: session.ID}); !errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("heartbeat of a closed session: %v", err)
	}
}

// checkOutput looks at what the order r left behind.
func (b *bundle) checkOutput(c *client.Client) {
	t := b.t
	t.Helper()
	ctx := t.Context()
	ended, err := c.Order(ctx, "ref:r")
	if err != nil || ended.State != "finished" || ended.Agent != "a1" || ended.StartedAt == nil || ended.ReadyWaitMillis == nil {
		t.Errorf("order: %+v, %v", ended, err)
	}
	history, err := c.History(ctx, "ref:r")
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	for _, m := range history {
		if m.Kind == "attempt" {
			attempts++
			var detail struct{ Outcome, Agent string }
			if err := json.Unmarshal(m.Detail, &detail); err != nil || detail.Outcome != "succeeded" || detail.Agent != "a1" {
				t.Errorf("attempt: %s, %v", m.Detail, err)
			}
		}
	}
	if attempts != 1 {
		t.Errorf("history has %d attempts: %+v", attempts, history)
	}
	outputs, err := c.Outputs(ctx, "ref:r")
	if err != nil || len(outputs) != 1 || string(outputs[0].Outputs) != `{"total":3}` || outputs[0].Job != "go" {
		t.Errorf("outputs: %+v, %v", outputs, err)
	}
	for _, tt := range []struct {
		req        client.TextRequest
		data       string
		offset, to int64
	}{
		{client.TextRequest{}, "one\ntwo\n", 0, 8},
		{client.TextRequest{Stream: "stderr"}, "\xff\x00", 0, 2},
		{client.TextRequest{Offset: 2, Limit: 3}, "e\nt", 2, 5},
		{client.TextRequest{Offset: 5}, "wo\n", 5, 8},
		{client.TextRequest{Tail: 6}, "e\ntwo\n", 2, 8},
		{client.TextRequest{Tail: 100}, "one\ntwo\n", 0, 8},
		{client.TextRequest{Offset: 8}, "", 8, 8},
		{client.TextRequest{Lease: 999}, "", 0, 0},
	} {
		text, err := c.Text(ctx, "ref:r", tt.req)
		if err != nil {
			t.Fatal(err)
		}
		if string(text.Data) != tt.data || text.Offset != tt.offset || text.Next != tt.to {
			t.Errorf("%+v: %q from %d to %d, want %q from %d to %d", tt.req, text.Data, text.Offset, text.Next, tt.data, tt.offset, tt.to)
		}
	}
}

func TestAgentRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, ctx := b.agent(), t.Context()
	if _, err := a.OpenSession(ctx, protocol.OpenRequest{Agent: "nobody", Processes: 1}); !errors.Is(err, protocol.ErrRefused) || code(err) != "unknown_agent" {
		t.Errorf("open a session of nobody: %v", err)
	}
	if _, err := a.OpenSession(ctx, protocol.OpenRequest{Agent: "a1"}); !errors.Is(err, protocol.ErrRefused) || code(err) != "invalid_request" {
		t.Errorf("open a session without processes: %v", err)
	}
	gone := protocol.SessionID(999)
	calls := map[string]func() error{
		"claim": func() error {
			_, err := a.Claim(ctx, protocol.ClaimRequest{Session: gone, RequestID: uuid.NewString(), Slots: 1})
			return err
		},
		"heartbeat": func() error {
			_, err := a.Heartbeat(ctx, protocol.HeartbeatRequest{Session: gone})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, protocol.ErrSessionGone) {
			t.Errorf("%s of a session that nobody knows: %v", name, err)
		}
	}
	viewer, err := client.NewAgent(client.Config{URLs: []string{b.url}, Token: secret(token.Viewer)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := viewer.Heartbeat(ctx, protocol.HeartbeatRequest{Session: 1}); !errors.Is(err, protocol.ErrRefused) || code(err) != "forbidden" {
		t.Errorf("a viewer's heartbeat: %v", err)
	}
	nowhere, err := client.NewAgent(client.Config{URLs: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nowhere.Heartbeat(ctx, protocol.HeartbeatRequest{Session: 1}); err == nil || errors.Is(err, protocol.ErrRefused) || errors.Is(err, protocol.ErrSessionGone) {
		t.Errorf("nobody there: %v, want a temporary error", err)
	}
}

// A long poll ends when its time is up, and when the agent goes away.
func TestLongPollEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.agent()
	session, err := a.OpenSession(t.Context(), protocol.OpenRequest{Agent: "a1", Processes: 1})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := a.Claim(t.Context(), protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 1, WaitMillis: 20})
	if err != nil || len(leases) != 0 {
		t.Errorf("nothing to do: %v, %v", leases, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Claim(ctx, protocol.ClaimRequest{Session: session.ID, RequestID: uuid.NewString(), Slots: 1, WaitMillis: 60_000}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("gone away: %v", err)
	}
}

// A field that this controller doesn't know is passed over in what agents say,
// so that neighbouring versions work together.
func TestNewerAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.do(token.Agent, "POST", "/api/v1/agent/sessions", jsonBody(`{"agent":"a1","processes":1,"of_the_future":true}`))
	if got.status != 201 {
		t.Errorf("open: %d %s", got.status, got.body)
	}
}
