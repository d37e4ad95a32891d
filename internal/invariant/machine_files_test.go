package invariant_test

import (
	"strings"
	"time"

	"pgregory.net/rapid"
)

// file does something with an attachment.
func (m *machine) file(t *rapid.T) {
	id := m.anyOrder(t)
	what := rapid.SampledFrom([]string{"complete", "complete", "good", "good", "bad", "discard", "expect"}).Draw(t, "what")
	name := rapid.SampledFrom([]string{"scan", "f", "f"}).Draw(t, "file")
	var err error
	switch what {
	case "complete":
		err = m.attachments.Complete(m.ctx, id, name, person)
	case "good", "bad":
		_, err = m.attachments.Put(m.ctx, id, name, strings.NewReader(what), int64(len(what)))
	case "discard":
		err = m.attachments.Discard(m.ctx, id, name, person, "test")
	case "expect":
		err = m.expect(id, "g")
	}
	o := m.alive[id]
	if o == nil {
		m.code(t, what, "order_final", err)
		return
	}
	m.code(t, what, m.handle(o, what, name), err)
}

func (m *machine) expect(id int64, name string) error {
	_, err := m.db.Pool.Exec(m.ctx, m.db.SQL(`SELECT siding.expect_attachment($1, jsonb_build_object('name', $2::text), 'test', 'test')`), id, name)
	return err
}

func (m *model) handle(o *modelOrder, what, name string) (refused string) {
	wasClosed := m.filesClosed(o)
	state, expected := o.files[name]
	close := func() {
		if !wasClosed {
			o.deadline = time.Time{}
			if o.limit > 0 {
				o.deadline = later(m.now, o.due).Add(o.limit)
			}
		}
	}
	if what == "expect" {
		undo := m.placeFor(o)
		defer func() {
			if refused != "" {
				undo()
			}
		}()
		switch {
		case o.state == "running":
			return "order_running"
		case o.started:
			return "order_started"
		case o.files["g"] != "":
			return "attachment_exists"
		}
		o.files["g"] = "pending"
		close()
		return ""
	}
	if !expected {
		// What is refused places nobody, since all of it is undone.
		return "attachment_not_found"
	}
	switch what {
	case "complete":
		switch {
		case state == "complete":
			m.placeFor(o)
			return ""
		case o.sums[name]:
			return "attachment_needs_bytes"
		}
		m.placeFor(o)
		o.files[name] = "complete"
	case "good", "bad":
		if state == "complete" {
			return "attachment_complete"
		}
		m.placeFor(o)
		if what == "good" || !o.sums[name] {
			o.files[name] = "complete"
			return ""
		}
		o.files[name] = "failed"
		switch {
		case o.state == "waiting" || o.state == "suspended":
			m.park(o, "attention", "attachment_check_failed")
		case o.state == "attention" && strings.HasPrefix(o.reason, "attachment"):
			o.reason = "attachment_check_failed"
		}
	case "discard":
		if o.state == "running" {
			return "order_running"
		}
		m.placeFor(o)
		if state == "pending" || state == "discarded" {
			return ""
		}
		o.files[name] = "discarded"
		close()
	}
	return ""
}
