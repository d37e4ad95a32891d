package attachment_test

import (
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/order"
)

func TestCompleteWithoutBytes(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	id := w.add(expecting{"name": "scan"}, expecting{"name": "sized", "size": 5})
	err := w.attachments.Complete(t.Context(), id, "sized", nadja)
	w.wantRefused(err, "attachment_needs_bytes", 409)

	if _, err := w.attachments.PutPartial(t.Context(), id, "scan", []byte("half")); err != nil {
		t.Fatal(err)
	}
	err = w.attachments.Complete(t.Context(), id, "scan", nadja)
	w.wantRefused(err, "attachment_uploading", 409)
	if err := w.attachments.Discard(t.Context(), id, "scan", nadja, "broken"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice changes nothing
		if err := w.attachments.Complete(t.Context(), id, "scan", nadja); err != nil {
			t.Fatal(err)
		}
	}
	w.wantStands(id, "waiting, blocked")
	w.put(id, "sized", "hello")
	w.wantStands(id, "waiting")
	if lines := w.woken.take(); len(lines) != 1 {
		t.Errorf("woken %v", lines)
	}
	_, _, err = w.attachments.Open(t.Context(), id, "scan", 0)
	w.wantRefused(err, "attachment_has_no_bytes", 404)
	for _, offset := range []int64{-1, 6} {
		_, _, err = w.attachments.Open(t.Context(), id, "sized", offset)
		w.wantRefused(err, "invalid_offset", 416)
	}
	_, _, err = w.attachments.Open(t.Context(), id, "other", 0)
	w.wantRefused(err, "attachment_not_found", 404)
	_, _, err = w.attachments.Open(t.Context(), id+1000, "other", 0)
	w.wantRefused(err, "order_not_found", 404)
	_, err = w.attachments.List(t.Context(), id+1000)
	w.wantRefused(err, "order_not_found", 404)
}

func TestExpect(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	id := w.add()
	w.wantStands(id, "waiting")
	w.advance(time.Hour)
	size := int64(5)
	expected := attachment.Expected{Name: "extra", Size: &size, SHA256: hexSum([]byte("hello"))}
	if err := w.attachments.Expect(t.Context(), id, expected, nadja, "forgotten"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting, blocked")
	w.advance(14 * time.Minute) // the limit of 15 minutes is counted from the new attachment
	w.wantStands(id, "waiting, blocked")
	err := w.attachments.Expect(t.Context(), id, expected, nadja, "forgotten")
	w.wantRefused(err, "attachment_exists", 409)
	err = w.attachments.Expect(t.Context(), id, attachment.Expected{Name: "no name"}, nadja, "")
	w.wantRefused(err, "invalid_attachment", 422)
	err = w.attachments.Expect(t.Context(), id, attachment.Expected{Name: "x", SHA256: "abc"}, nadja, "")
	w.wantRefused(err, "invalid_attachment", 422)
	// Another one doesn't prolong the wait.
	if err := w.attachments.Expect(t.Context(), id, attachment.Expected{Name: "more"}, nadja, ""); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.wantStands(id, "attention attachment_wait_limit, blocked")

	started := w.add()
	w.exec(`UPDATE siding.orders SET started_at = siding.clock() WHERE id = $1`, started)
	err = w.attachments.Expect(t.Context(), started, expected, nadja, "")
	w.wantRefused(err, "order_started", 409)
}

func TestExpectWithContent(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	id := w.add()
	large := content(5<<19 + 1)
	w.exec(`SELECT siding.expect_attachment($1, jsonb_build_object('name', 'inline', 'content', $2::text), 'nadja', '')`,
		id, base64.StdEncoding.EncodeToString([]byte(large)))
	w.wantStands(id, "waiting")
	w.wantChunks(3)
	if got := w.read(id, "inline", 0); got != large {
		t.Errorf("got %d other bytes", len(got))
	}
}

func TestWaitLimitAndLateUpload(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expect("scan", "hello world"))
	if _, err := w.attachments.PutPartial(t.Context(), id, "scan", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	w.advance(15 * time.Minute)
	w.wantStands(id, "attention attachment_wait_limit, blocked")
	w.wantChunks(2) // partial bytes stay
	if n, err := w.attachments.SweepUploads(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("swept %d uploads of a live order, %v", n, err)
	}
	w.wantChunks(2)

	w.put(id, "scan", "hello")
	w.wantStands(id, "attention attachment_check_failed, blocked")
	if limit := one[string](w, `SELECT detail ->> 'limit' FROM siding.attentions WHERE order_id = $1`, id); limit != "00:15:00" {
		t.Errorf("the limit is forgotten: %q", limit)
	}
	if err := w.orders.Resolve(t.Context(), id, "resume", nadja, "it comes again"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting, blocked")
	w.advance(14 * time.Minute)
	w.wantStands(id, "waiting, blocked")
	w.advance(time.Minute)
	w.wantStands(id, "attention attachment_wait_limit, blocked")
	info := w.put(id, "scan", "hello world")
	if info.State != attachment.Complete || !info.Late {
		t.Errorf("got %+v", info)
	}
	w.wantStands(id, "attention attachment_wait_limit")
	if _, err := w.attachments.SweepUploads(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	w.wantChunks(3) // the partial and the failed bytes are replaced
	late := one[bool](w, `SELECT (detail ->> 'late')::boolean FROM siding.events WHERE order_id = $1 AND kind = 'attachment_complete'`, id)
	if !late {
		t.Error("the event doesn't say that it was late")
	}
	if err := w.orders.Resolve(t.Context(), id, "resume", nadja, "it is there"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting")
	w.advance(time.Hour)
	w.wantStands(id, "waiting")
}

func TestFailedCheckByStateOfTheOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(w *world, id int64)
		want   string
		late   bool
	}{
		"suspended": {
			func(w *world, id int64) {
				if err := w.orders.Suspend(w.Context(), id, false, nadja, "later"); err != nil {
					w.Fatal(err)
				}
			}, "attention attachment_check_failed, blocked", false,
		},
		"running":  {func(w *world, id int64) { w.exec(`UPDATE siding.orders SET state = 'running' WHERE id = $1`, id) }, "running, blocked", false},
		"dead":     {func(w *world, id int64) { w.exec(`UPDATE siding.orders SET state = 'dead' WHERE id = $1`, id) }, "dead, blocked", false},
		"lost job": {func(w *world, id int64) { w.exec(`SELECT siding.park($1, 'attention', 'lost')`, id) }, "attention lost, blocked", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, attachment.Config{})
			id := w.add(expect("scan", "hello"))
			test.before(w, id)
			if info := w.put(id, "scan", "hallo"); info.State != attachment.Failed || info.Late {
				t.Errorf("got %+v", info)
			}
			w.wantStands(id, test.want)
			if failed := one[int](w, `SELECT count(*) FROM siding.events WHERE order_id = $1 AND kind = 'attachment_failed'`, id); failed != 1 {
				t.Errorf("%d events", failed)
			}
		})
	}
}

func TestSuspendedOrdersStaySuspendedWhenComplete(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	id := w.add(expect("scan", "hello"))
	if err := w.orders.Suspend(t.Context(), id, false, nadja, "later"); err != nil {
		t.Fatal(err)
	}
	if info := w.put(id, "scan", "hello"); info.State != attachment.Complete || info.Late {
		t.Errorf("got %+v", info)
	}
	w.wantStands(id, "suspended suspended")
	if err := w.orders.Resume(t.Context(), id, nadja, "now"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting")
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expecting{"name": "scan"})
	err := w.attachments.Discard(t.Context(), id, "scan", nadja, " ")
	w.wantRefused(err, "reason_required", 422)
	err = w.attachments.Discard(t.Context(), id, "scan", order.Person{}, "because")
	w.wantRefused(err, "reason_required", 422)
	err = w.attachments.Discard(t.Context(), id, "other", nadja, "because")
	w.wantRefused(err, "attachment_not_found", 404)
	if err := w.attachments.Discard(t.Context(), id, "scan", nadja, "nothing there"); err != nil {
		t.Fatal(err)
	}
	w.wantState(id, "scan", attachment.Pending)

	w.put(id, "scan", "hello world")
	r, _, err := w.attachments.Open(t.Context(), id, "scan", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	w.advance(20 * time.Minute)
	w.woken.take()
	if err := w.attachments.Discard(t.Context(), id, "scan", nadja, "the wrong file"); err != nil {
		t.Fatal(err)
	}
	w.wantState(id, "scan", attachment.Discarded)
	w.wantStands(id, "waiting, blocked")
	w.advance(14 * time.Minute) // the limit is counted from now
	w.wantStands(id, "waiting, blocked")
	if n, err := w.attachments.SweepUploads(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("abandoned %d, %v", n, err)
	}
	w.wantChunks(0)
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading discarded bytes: %v", err)
	}

	w.put(id, "scan", "again")
	w.exec(`UPDATE siding.orders SET state = 'running' WHERE id = $1`, id)
	err = w.attachments.Discard(t.Context(), id, "scan", nadja, "because")
	w.wantRefused(err, "order_running", 409)
	w.exec(`UPDATE siding.orders SET state = 'dead', started_at = siding.clock() WHERE id = $1`, id)
	if err := w.attachments.Discard(t.Context(), id, "scan", nadja, "it makes the job fail"); err != nil {
		t.Fatal(err)
	}
	if err := w.orders.Resolve(t.Context(), id, "retry", nadja, "with another file"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting, blocked")
	w.put(id, "scan", "better")
	w.wantStands(id, "waiting")
}

func TestSweepers(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expecting{"name": "whole"}, expecting{"name": "half"})
	live := w.add(expecting{"name": "whole"}, expecting{"name": "half"})
	for _, id := range []int64{id, live} {
		w.put(id, "whole", "hello world")
		if _, err := w.attachments.PutPartial(t.Context(), id, "half", []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	w.advance(time.Minute)
	if err := w.orders.Cancel(t.Context(), id, nadja, "test"); err != nil {
		t.Fatal(err)
	}
	sweep := func(olderThan time.Duration, want int) {
		t.Helper()
		if n, err := w.attachments.SweepUploads(t.Context(), olderThan); n != want || err != nil {
			t.Errorf("swept %d, %v; want %d", n, err, want)
		}
	}
	sweep(time.Hour, 0)
	w.wantChunks(10)
	sweep(time.Minute, 1)
	w.wantChunks(8)
	w.wantState(id, "half", attachment.Pending)
	w.wantState(live, "half", attachment.Uploading)
	if got := w.read(id, "whole", 6); got != "world" {
		t.Errorf("got %q", got)
	}
	expire := func(keep time.Duration, want int) {
		t.Helper()
		if n, err := w.attachments.SweepEnded(t.Context(), keep, 1000); n != want || err != nil {
			t.Errorf("removed %d, %v; want %d", n, err, want)
		}
	}
	w.advance(attachment.DefaultKeepEnded - time.Second)
	expire(0, 0)
	expire(attachment.DefaultKeepEnded, 0)
	w.advance(time.Second)
	expire(attachment.DefaultKeepEnded, 1)
	w.wantChunks(5)
	info := w.info(id, "whole")
	if info.State != attachment.Complete || info.HasBytes || info.SHA256 != hexSum([]byte("hello world")) {
		t.Errorf("got %+v", info)
	}
	_, _, err := w.attachments.Open(t.Context(), id, "whole", 0)
	w.wantRefused(err, "attachment_removed", 410)
	if _, err := w.attachments.SweepEnded(t.Context(), -1, 1); err == nil {
		t.Error("a negative retention is accepted")
	}
	if _, err := w.attachments.SweepUploads(t.Context(), -1); err == nil {
		t.Error("a negative age is accepted")
	}
}

func TestStoreReadable(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	note := func(problem string, want bool) {
		t.Helper()
		if err := w.attachments.StoreReadable(t.Context(), "postgres", problem); err != nil {
			t.Fatal(err)
		}
		if got := one[bool](w, `SELECT unreadable FROM siding.stores WHERE store = 'postgres'`); got != want {
			t.Errorf("unreadable: got %t, want %t", got, want)
		}
	}
	note("timeout", false)
	w.advance(20 * time.Second)
	note("timeout", false)
	w.advance(10 * time.Second)
	note("timeout", true)
	note("", false)
	note("timeout", false)
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config attachment.Config
		want   string
	}{
		"default":        {attachment.Config{}, ""},
		"negative limit": {attachment.Config{MaxBytes: -1}, "largest attachment"},
		"huge chunks":    {attachment.Config{ChunkBytes: 1 << 30}, "chunk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := attachment.NewWith(nil, nil, test.config)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
