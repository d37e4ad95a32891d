package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/siding-dev/siding/client"
)

// Definitions writes a list of definitions.
func (p *Printer) Definitions(entries []client.Definition) error {
	t := Table{Header: []string{"kind", "name", "revision", "changed", "definition"}, Empty: "none"}
	for _, e := range entries {
		t.Row(e.Kind, e.Name, e.Revision, p.Time(&e.UpdatedAt), cut(string(e.Definition), 90))
	}
	return p.Print(entries, t)
}

func cut(text string, length int) string {
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	return string(runes[:length-3]) + "..."
}

// Changes writes what an apply did.
func (p *Printer) Changes(changes []client.Change) error {
	t := Table{Header: []string{"kind", "name", "action", "revision", "version"}}
	for _, c := range changes {
		version := ""
		if c.Version > 0 {
			version = fmt.Sprint(c.Version)
		}
		t.Row(c.Kind, c.Name, c.Action, c.Revision, version)
	}
	return p.Print(changes, t)
}

// Added writes the orders that were added.
func (p *Printer) Added(added []client.Added) error {
	t := Table{Header: []string{"id", "added"}}
	for _, a := range added {
		what := "new"
		if a.Existing {
			what = "was there: same reference and content"
		}
		t.Row(a.ID, what)
	}
	return p.Print(added, t)
}

// Attachments writes the attachments of an order.
func (p *Printer) Attachments(list []client.Attachment) error {
	t := Table{Header: []string{"name", "state", "expected", "size", "sha256", "changed", "problem"}, Empty: "no attachments"}
	size := func(n *int64) string {
		if n == nil {
			return ""
		}
		return Size(*n)
	}
	for _, a := range list {
		got := size(a.Size)
		if a.Size == nil && a.Received > 0 {
			got = Size(a.Received) + " so far"
		}
		hash := a.SHA256
		if hash == "" {
			hash = a.ExpectedSHA256
		}
		t.Row(a.Name, a.State, size(a.ExpectedSize), got, cut(hash, 16), p.Time(&a.ChangedAt), a.Problem)
	}
	return p.Print(list, t)
}

var listHeader = []string{"order", "ref", "workflow", "key", "state", "job", "line", "added", "due", "reason"}

func (p *Printer) listRow(e client.ListEntry) []any {
	return []any{e.Order, e.Ref, e.Workflow, e.Key, e.State, e.Job, e.Line, p.Time(&e.AddedAt), p.Time(e.DueAt), e.Reason}
}

// QueueList writes a list of a queue.
func (p *Printer) QueueList(page client.ListPage) error {
	t := Table{Header: listHeader, Empty: fmt.Sprintf("list %s of queue %s is empty", page.List, page.Queue)}
	for _, e := range page.Orders {
		t.Row(p.listRow(e)...)
	}
	if page.Next != "" {
		t.Foot = "there are more; go on with --cursor " + page.Next
	}
	return p.Print(page, t)
}

// Counts writes how long the lists of all queues are, a row per queue.
func (p *Printer) Counts(counts []client.Count) error {
	lists := []string{"waiting", "pending", "scheduled", "dead", "attention", "suspended"}
	t := Table{Header: append([]string{"queue"}, lists...), Empty: "nothing was counted yet; it happens every few seconds"}
	byQueue := map[string]map[string]int64{}
	var queues []string
	age := time.Duration(0)
	for _, c := range counts {
		if byQueue[c.Queue] == nil {
			byQueue[c.Queue] = map[string]int64{}
			queues = append(queues, c.Queue)
		}
		byQueue[c.Queue][c.List] = c.Orders
		age = max(age, time.Duration(c.AgeMillis)*time.Millisecond)
	}
	for _, q := range queues {
		row := []any{q}
		for _, l := range lists {
			row = append(row, Count(byQueue[q][l]))
		}
		t.Row(row...)
	}
	t.Foot = "counted " + Duration(age) + " ago; - are the orders without a queue"
	return p.Print(counts, t)
}

// Places writes who is in a queue and who is behind its capacity.
func (p *Printer) Places(places client.Places) error {
	t := Table{Header: []string{"resource", "order", "position", "place"}, Empty: "no candidates"}
	for _, one := range places.InQueue {
		t.Row(one.Kind+" "+one.Resource, one.Order, one.Position, "in the queue")
	}
	for _, one := range places.Overflow {
		t.Row(one.Kind+" "+one.Resource, one.Order, one.Position, "overflow")
	}
	return p.Print(places, t)
}

// LineMode writes how a line treats blocked orders.
func (p *Printer) LineMode(l client.Line) error {
	t := Table{Header: []string{"agent", "mode", "reason", "since", "set to", "by", "because", "max blocked"}}
	limit := ""
	if l.MaxBlocked != nil {
		limit = Count(int64(*l.MaxBlocked))
	}
	t.Row(l.Agent, l.Mode, l.Reason, p.Time(l.Since), l.PersonMode, l.Person, l.PersonReason, limit)
	return p.Print(l, t)
}

// Pauses writes what is paused.
func (p *Printer) Pauses(pauses []client.Pause) error {
	t := Table{Header: []string{"kind", "name", "until", "since", "by", "because"}, Empty: "nothing is paused"}
	for _, one := range pauses {
		until := p.Time(one.Until)
		if until == "" {
			until = "unpaused"
		}
		t.Row(one.Kind, one.Name, until, p.Time(&one.Since), one.Person, one.Reason)
	}
	return p.Print(pauses, t)
}

// Sessions writes sessions of agents.
func (p *Printer) Sessions(page client.SessionPage) error {
	t := Table{Header: []string{"session", "agent", "running", "host", "pid", "opened", "heard of", "ended"}, Empty: "no sessions"}
	for _, s := range page.Sessions {
		ended := p.Time(s.EndedAt)
		if s.EndReason != "" {
			ended = strings.TrimSpace(ended + " (" + s.EndReason + ")")
		}
		t.Row(s.ID, s.Agent, fmt.Sprintf("%d of %d", s.Running, s.Processes), s.Host, s.PID, p.Time(&s.OpenedAt), p.Time(&s.HeartbeatAt), ended)
	}
	if page.Next != "" {
		t.Foot = "there are more; go on with --cursor " + page.Next
	}
	return p.Print(page, t)
}

// Tokens writes access tokens, without their secrets.
func (p *Printer) Tokens(tokens []client.Token) error {
	t := Table{Header: []string{"name", "role", "created", "by", "revoked"}, Empty: "no tokens"}
	for _, one := range tokens {
		t.Row(one.Name, one.Role, p.Time(&one.CreatedAt), one.CreatedBy, p.Time(one.RevokedAt))
	}
	return p.Print(tokens, t)
}

// QueueLists writes all lists of a queue as one table.
func (p *Printer) QueueLists(pages []client.ListPage) error {
	t := Table{Header: append([]string{"list"}, listHeader...), Empty: "all lists are empty"}
	var more []string
	for _, page := range pages {
		for _, e := range page.Orders {
			t.Row(append([]any{page.List}, p.listRow(e)...)...)
		}
		if page.Next != "" {
			more = append(more, page.List)
		}
	}
	if len(more) > 0 {
		t.Foot = "there are more in " + strings.Join(more, ", ") + "; see them with --list"
	}
	return p.Print(pages, t)
}

// Definition writes one definition: as JSON for people too, who will want to
// apply it again.
func (p *Printer) Definition(d client.Definition) error {
	if p.Format == FormatJSON {
		return p.JSON(d)
	}
	version := ""
	if d.Version > 0 {
		version = fmt.Sprintf(", version %d", d.Version)
	}
	if err := p.Line("# %s %s, revision %d%s, changed %s", d.Kind, d.Name, d.Revision, version, p.Time(&d.UpdatedAt)); err != nil {
		return err
	}
	return p.JSON(d.Definition)
}

// Outputs writes the values that jobs handed back.
func (p *Printer) Outputs(outputs []client.StepOutput) error {
	t := Table{Header: []string{"step", "job", "lease", "ended", "values"}, Empty: "no values"}
	for _, o := range outputs {
		t.Row(o.Step, o.Job, o.Lease, p.Time(&o.EndedAt), string(o.Outputs))
	}
	return p.Print(outputs, t)
}
