package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siding-dev/siding/client"
)

// Orders writes a list of orders.
func (p *Printer) Orders(page client.OrderPage) error {
	t := Table{Header: []string{"id", "ref", "workflow", "key", "queue", "state", "step", "line", "added"}, Empty: "no orders"}
	for _, o := range page.Orders {
		t.Row(o.ID, o.Ref, o.Workflow, o.Key, o.Queue, state(o), o.StepPath+" "+o.Job, o.Line, p.Time(&o.AddedAt))
	}
	if page.Next != "" {
		t.Foot = "there are more; go on with --cursor " + page.Next
	}
	return p.Print(page, t)
}

// state is an order's state with what a person wants to know first.
func state(o client.Order) string {
	text := o.Word
	switch {
	case o.Stopping != "":
		text += " (stopping: " + o.Stopping + ")"
	case o.Attention != nil:
		text += " (" + o.Attention.Reason + ")"
	case o.State == "waiting" && o.Attempt > 0:
		text += fmt.Sprintf(" (after %d of %d attempts)", o.Attempt, o.MaxAttempts)
	}
	return text
}

// Order writes everything about one order.
func (p *Printer) Order(o client.Order) error {
	t := Table{Header: []string{"order", fmt.Sprint(o.ID)}}
	add := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			t.Row(name, text)
		}
	}
	at := func(name string, when *time.Time) {
		if when != nil && !when.IsZero() {
			add(name, when.Local().Format("2006-01-02 15:04:05.000")+" ("+p.Time(when)+")")
		}
	}
	add("ref", o.Ref)
	add("workflow", fmt.Sprintf("%s, version %d", o.Workflow, o.Version))
	add("state", state(o))
	add("closed gates", strings.Join(o.Gates, ", "))
	add("step", o.StepPath+" "+o.Job)
	if o.Attempt > 0 {
		add("attempt", fmt.Sprintf("%d of %d", o.Attempt, o.MaxAttempts))
	}
	add("key", o.Key)
	add("queue", o.Queue)
	add("line", o.LineKind+" "+o.Line)
	add("agent", o.Agent)
	add("position", o.Position)
	if o.Released {
		add("released", "may go ahead of its predecessors, by a decision")
	}
	add("added by", o.AddedBy)
	at("added", &o.AddedAt)
	at("due", o.DueAt)
	at("ready", o.ReadyAt)
	at("started", o.StartedAt)
	if o.LeasedAt != nil && (o.StartedAt == nil || !o.LeasedAt.Equal(*o.StartedAt)) {
		at("last attempt", o.LeasedAt)
	}
	at("ended", o.EndedAt)
	at("waits at most until", o.WaitDeadline)
	if o.ReadyWaitMillis != nil {
		add("waited when ready", Duration(time.Duration(*o.ReadyWaitMillis)*time.Millisecond))
	}
	if o.Attention != nil {
		add("because", o.Attention.Reason+" "+detail(o.Attention.Detail))
		at("since", &o.Attention.Since)
	}
	if o.ExitCode != nil {
		add("exit code", *o.ExitCode)
	}
	add("message", o.Message)
	for _, h := range o.Holds {
		units := "exclusive"
		if h.Weight != nil {
			units = Count(int64(*h.Weight)) + " shared"
		}
		add("holds "+h.Lock, units+", granted "+p.Time(&h.GrantedAt))
	}
	for _, a := range o.Attachments {
		text := a.State
		if a.Size != nil {
			text += ", " + Size(*a.Size)
		}
		if a.Problem != "" {
			text += ": " + a.Problem
		}
		if a.Late {
			text += " (late)"
		}
		add("attachment "+a.Name, text)
	}
	if len(o.Args) > 0 {
		add("args", string(o.Args))
	}
	return p.Print(o, t)
}

// detail writes a JSON object in one line: name value, name value.
func detail(object json.RawMessage) string {
	var fields map[string]json.RawMessage
	if len(object) == 0 || json.Unmarshal(object, &fields) != nil {
		return string(object)
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	parts := make([]string, 0, len(names))
	for _, name := range names {
		value := string(fields[name])
		var text string
		if json.Unmarshal(fields[name], &text) == nil {
			value = text
		}
		parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+value)
	}
	return strings.Join(parts, ", ")
}

// History writes what happened to an order.
func (p *Printer) History(moments []client.Moment) error {
	t := Table{Header: []string{"at", "what", "about", "who", "why", "detail"}}
	for _, m := range moments {
		t.Row(clock(m.At), m.Kind, m.Subject, m.Person, m.Reason, detail(m.Detail))
	}
	return p.Print(moments, t)
}

// Events writes a page of events.
func (p *Printer) Events(page client.EventPage, limit int) error {
	t := eventTable(page.Events)
	t.Empty = "no events"
	if len(page.Events) >= limit {
		t.Foot = "there may be more; go on with --cursor " + page.Next
	}
	return p.Print(page, t)
}

// MoreEvents writes events that came later: JSON objects one by line, or lines
// without a header.
func (p *Printer) MoreEvents(events []client.Event) error {
	for _, e := range events {
		if p.Format == FormatJSON {
			line, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("write: %w", err)
			}
			if err := p.Line("%s", line); err != nil {
				return err
			}
			continue
		}
		if err := p.Line("%s", strings.Join(eventTable([]client.Event{e}).Rows[0], "  ")); err != nil {
			return err
		}
	}
	return nil
}

func eventTable(events []client.Event) Table {
	t := Table{Header: []string{"no", "at", "order", "what", "about", "who", "why", "detail"}}
	for _, e := range events {
		order := ""
		if e.Order != 0 {
			order = fmt.Sprint(e.Order)
		}
		t.Row(e.Number, clock(e.At), order, e.Kind, e.Subject, e.Person, e.Reason, detail(e.Detail))
	}
	return t
}

// clock writes an instant of a log, where order matters more than distance.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// Why writes why an order waits.
func (p *Printer) Why(a client.Why) error {
	if len(a.Obstacles) == 0 {
		text := fmt.Sprintf("order %d is %s; nothing keeps it", a.Order, a.State)
		if a.Next {
			text = fmt.Sprintf("order %d is ready and the next to go", a.Order)
		}
		return p.Say(a, "%s", text)
	}
	t := Table{Header: []string{"class", "code", "subject", "numbers", "since", "ends by"}}
	for _, o := range a.Obstacles {
		t.Row(o.Class, o.Code, o.Subject, detail(o.Numbers), p.Time(o.Since), o.EndsBy)
	}
	t.Foot = fmt.Sprintf("order %d is %s", a.Order, a.State)
	return p.Print(a, t)
}
