package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/token"
)

func TestAddOrders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(body string, status int) string {
		t.Helper()
		got := b.do(token.Submitter, http.MethodPost, "/api/v1/orders", strings.NewReader(body))
		if got.status != status {
			t.Fatalf("add %s: %d %s, want %d", body, got.status, got.body, status)
		}
		return got.body
	}
	var one client.Added
	if err := json.Unmarshal([]byte(add(`{"workflow":"scanned","ref":"r1"}`, 201)), &one); err != nil || one.ID == 0 || one.Existing {
		t.Errorf("one object: %+v, %v", one, err)
	}
	var again client.Added
	if err := json.Unmarshal([]byte(add(` {"ref":"r1","workflow":"scanned"}`, 200)), &again); err != nil || again.ID != one.ID || !again.Existing {
		t.Errorf("again: %+v, %v, want the existing one", again, err)
	}
	var many []client.Added
	text := add("\n"+`[{"workflow":"scanned","ref":"r1"},{"workflow":"scanned","ref":"r2"}]`, 201)
	if err := json.Unmarshal([]byte(text), &many); err != nil || len(many) != 2 || many[0].ID != one.ID || !many[0].Existing || many[1].Existing {
		t.Errorf("an array: %s, %v", text, err)
	}
	for contentType, want := range map[string]int{"application/x-www-form-urlencoded": 200, "application/json; charset=utf-8": 200, "text/html": 415} {
		got := b.do(token.Operator, http.MethodPost, "/api/v1/orders/ref:r2/suspend", strings.NewReader(`{"reason":"x"}`), "Content-Type: "+contentType)
		if got.status != want {
			t.Errorf("a body of %s: %d %s, want %d", contentType, got.status, got.body, want)
		}
	}
	if got := add(`[]`, 200); strings.TrimSpace(got) != "[]" {
		t.Errorf("no order: %s, want []", got)
	}
}

// An order has everything a person wants to know, and the client knows every
// field.
func TestReadOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	added, err := c.Add(ctx, client.NewOrder{
		Workflow: "scanned", Ref: "a/b %", Queue: "Q1", Args: json.RawMessage(`{"n": 1}`), WaitLimit: "1h",
		Attachments: []client.NewAttachment{{Name: "scan"}, {Name: "note", Content: []byte("hi")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.await("it is placed", `SELECT NOT EXISTS (SELECT FROM siding.orders WHERE intake_closed)`)
	byRef, err := c.Order(ctx, "ref:a/b %")
	if err != nil {
		t.Fatal(err)
	}
	byID, err := c.Order(ctx, fmt.Sprint(added.ID))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byID, byRef); diff != "" {
		t.Errorf("by id and by reference differ: %s", diff)
	}
	want := client.Order{
		ID: added.ID, Ref: "a/b %", Workflow: "scanned", Version: 1, State: "waiting", Word: "blocked", StepPath: "1", Job: "go",
		MaxAttempts: 5, Queue: "Q1", LineKind: "agent", Line: "a1", Position: added.ID << 20, AddedBy: "t-operator",
		Args: json.RawMessage(`{"n":1}`),
	}
	got := byRef
	if got.WaitDeadline == nil || got.WaitDeadline.Sub(got.AddedAt).Hours() != 1 {
		t.Errorf("added at %s, waits until %v: not an hour", got.AddedAt, got.WaitDeadline)
	}
	if !slices.Contains(got.Gates, "attachment") {
		t.Errorf("gates %v lack attachment", got.Gates)
	}
	size := int64(2)
	attachments := []client.AttachmentSummary{{Name: "note", State: "complete", Size: &size}, {Name: "scan", State: "pending"}}
	if diff := cmp.Diff(attachments, got.Attachments); diff != "" {
		t.Errorf("attachments: %s", diff)
	}
	got.AddedAt, got.WaitDeadline, got.Gates, got.Attachments = want.AddedAt, nil, nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order: %s", diff)
	}

	ended, err := c.Cancel(ctx, "ref:a/b %", "not needed")
	if err != nil {
		t.Fatal(err)
	}
	if ended.State != "cancelled" || ended.EndedAt == nil || ended.Ref != "a/b %" || string(ended.Args) != `{"n":1}` || len(ended.Gates) != 0 || ended.ReadyAt != nil {
		t.Errorf("an ended order: %+v", ended)
	}
	history, err := c.History(ctx, fmt.Sprint(added.ID))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range history {
		kinds = append(kinds, m.Kind)
	}
	if diff := cmp.Diff([]string{"added", "cancel", "ended"}, kinds); diff != "" {
		t.Errorf("history: %s", diff)
	}
	if _, err := c.Cancel(ctx, "ref:a/b %", "again"); code(err) != "order_final" {
		t.Errorf("cancel again: %v", err)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	if _, err := c.AddMany(ctx, []client.NewOrder{
		{Workflow: "keyed", Key: "k", Ref: "k1"}, {Workflow: "keyed", Key: "k", Ref: "k2"}, {Workflow: "scanned", Ref: "s"},
	}); err != nil {
		t.Fatal(err)
	}
	b.await("all are placed", `SELECT NOT EXISTS (SELECT FROM siding.orders WHERE intake_closed)`)
	for _, step := range []struct {
		name string
		do   func() (client.Order, error)
		want string // state, word, queue, released
	}{
		{"release", func() (client.Order, error) { return c.Release(ctx, "ref:k2", "urgent") }, "waiting ready  true"},
		{"suspend", func() (client.Order, error) { return c.Suspend(ctx, "ref:k1", true, "") }, "suspended suspended  false"},
		{"resume", func() (client.Order, error) { return c.Resume(ctx, "ref:k1", "") }, "waiting ready  false"},
		{"assign", func() (client.Order, error) { return c.Assign(ctx, "ref:s", "Q1", "") }, "waiting blocked Q1 false"},
		{"assign none", func() (client.Order, error) { return c.Assign(ctx, "ref:s", "", "") }, "waiting blocked  false"},
		{"move", func() (client.Order, error) { return c.Move(ctx, "ref:k1", "after", "ref:k2", "") }, "waiting ready  false"},
		{"move first", func() (client.Order, error) { return c.Move(ctx, "ref:s", "first", "", "") }, "waiting blocked  false"},
	} {
		got, err := step.do()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if text := fmt.Sprint(got.State, " ", got.Word, " ", got.Queue, " ", got.Released); text != step.want {
			t.Errorf("%s: %s, want %s", step.name, text, step.want)
		}
	}
	page, err := c.List(ctx, "-", "waiting", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, e := range page.Orders {
		refs = append(refs, e.Ref)
	}
	if diff := cmp.Diff([]string{"s", "k2", "k1"}, refs); diff != "" {
		t.Errorf("the waiting ones: %s", diff)
	}
	why, err := c.Why(ctx, "ref:s")
	if err != nil || len(why.Obstacles) != 1 || why.Obstacles[0].Code != "attachment_pending" {
		t.Errorf("why: %+v, %v", why, err)
	}
}

func TestListOrders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	var orders []client.NewOrder
	for i := range 7 {
		orders = append(orders, client.NewOrder{Workflow: "scanned", Ref: fmt.Sprintf("s%d", i), Queue: "Q1"})
	}
	for i := range 5 {
		orders = append(orders, client.NewOrder{Workflow: "keyed", Ref: fmt.Sprintf("k%d", i), Key: fmt.Sprint(i % 2)})
	}
	if _, err := c.AddMany(ctx, orders); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"s1", "s3", "k1"} {
		if _, err := c.Cancel(ctx, "ref:"+ref, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		filter client.OrderFilter
		want   string
	}{
		"all":               {client.OrderFilter{}, "k4 k3 k2 k1 k0 s6 s5 s4 s3 s2 s1 s0"},
		"live":              {client.OrderFilter{State: "live"}, "k4 k3 k2 k0 s6 s5 s4 s2 s0"},
		"ended":             {client.OrderFilter{State: "ended"}, "k1 s3 s1"},
		"cancelled":         {client.OrderFilter{State: "cancelled", Workflow: "scanned"}, "s3 s1"},
		"finished":          {client.OrderFilter{State: "finished"}, ""},
		"of a workflow":     {client.OrderFilter{Workflow: "keyed"}, "k4 k3 k2 k1 k0"},
		"of a queue":        {client.OrderFilter{Queue: "Q1"}, "s6 s5 s4 s3 s2 s1 s0"},
		"of no queue":       {client.OrderFilter{Queue: "-", State: "live"}, "k4 k3 k2 k0"},
		"of a key":          {client.OrderFilter{Key: "1"}, "k3 k1"},
		"of a live key":     {client.OrderFilter{Key: "1", State: "waiting"}, "k3"},
		"by reference":      {client.OrderFilter{RefPrefix: "s"}, "s0 s1 s2 s3 s4 s5 s6"},
		"by reference live": {client.OrderFilter{RefPrefix: "k", State: "live"}, "k0 k2 k3 k4"},
		"by no reference":   {client.OrderFilter{RefPrefix: "x"}, ""},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			var refs []string
			pages := 0
			for cursor := ""; ; pages++ {
				page, err := c.Orders(ctx, tt.filter, cursor, limit)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if len(page.Orders) > limit {
					t.Errorf("%s: a page of %d has %d orders", name, limit, len(page.Orders))
				}
				for _, o := range page.Orders {
					refs = append(refs, o.Ref)
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if got := strings.Join(refs, " "); got != tt.want {
				t.Errorf("%s by %d: got %s, want %s", name, limit, got, tt.want)
			}
		}
	}
	for name, filter := range map[string]client.OrderFilter{"unknown_workflow": {Workflow: "x"}, "unknown_queue": {Queue: "x"}} {
		if _, err := c.Orders(ctx, filter, "", 0); code(err) != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	n := 0
	for _, err := range c.EachOrder(ctx, client.OrderFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(orders) {
		t.Errorf("EachOrder gave %d of %d", n, len(orders))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	start, err := c.Events(ctx, client.TailEvents, 10)
	if err != nil || len(start.Events) != 0 {
		t.Fatalf("tail: %+v, %v", start, err)
	}
	if _, err := c.Pause(ctx, "queue", "Q1", "1h", "lunch"); err != nil {
		t.Fatal(err)
	}
	pauses, err := c.Pauses(ctx)
	if err != nil || len(pauses) != 1 || pauses[0].Name != "Q1" || pauses[0].Person != "t-operator" || pauses[0].Until == nil {
		t.Errorf("pauses: %+v, %v", pauses, err)
	}
	if err := c.Unpause(ctx, "queue", "Q1", "back"); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	cursor := start.Next
	for range 3 {
		page, err := c.Events(ctx, cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			kinds = append(kinds, e.Kind+" "+e.Subject+" "+e.Reason)
		}
		cursor = page.Next
	}
	if diff := cmp.Diff([]string{"pause queue/Q1 lunch", "unpause queue/Q1 back"}, kinds); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

// An event whose number was drawn before that of one read already, but whose
// transaction ended after, isn't lost.
func TestLateEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	ctx := t.Context()
	start, err := c.Events(ctx, client.TailEvents, 10)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := b.db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `SELECT siding.record(NULL, 'slow')`); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.Pool.Exec(ctx, `SELECT siding.record(NULL, 'fast')`); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	read := func(cursor string) string {
		t.Helper()
		page, err := c.Events(ctx, cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			kinds = append(kinds, e.Kind)
		}
		return page.Next
	}
	cursor := read(start.Next)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	cursor = read(cursor)
	read(cursor)
	if diff := cmp.Diff([]string{"fast", "slow"}, kinds); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.client(token.Operator)
	line, err := c.SetLineMode(t.Context(), "a1", "strict", "audit")
	if err != nil || line.Mode != "strict" || line.Reason != "set_by_person" || line.PersonMode != "strict" || line.PersonReason != "audit" {
		t.Errorf("strict: %+v, %v", line, err)
	}
	if line, err = c.SetLineMode(t.Context(), "a1", "auto", "done"); err != nil || line.Mode != "pass" || line.PersonMode != "auto" {
		t.Errorf("auto: %+v, %v", line, err)
	}
	read, err := c.Line(t.Context(), "a1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(line, read); diff != "" {
		t.Errorf("line: %s", diff)
	}
}
