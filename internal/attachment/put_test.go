package attachment_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

func TestPutCompletesAndOpensTheGateWithTheLast(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expect("scan", "hello world"), expecting{"name": "photo"})
	w.wantStands(id, "waiting, blocked")

	info := w.put(id, "scan", "hello world")
	size := int64(11)
	want := attachment.Info{
		Name: "scan", State: attachment.Complete, ExpectedSize: &size, ExpectedSHA256: hexSum([]byte("hello world")),
		Size: &size, SHA256: hexSum([]byte("hello world")), HasBytes: true, Store: "postgres", AddedAt: info.AddedAt, ChangedAt: info.ChangedAt,
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	w.wantStands(id, "waiting, blocked")
	if lines := w.woken.take(); len(lines) > 0 {
		t.Errorf("woken while an attachment is missing: %v", lines)
	}
	w.advance(1)
	w.put(id, "photo", "")
	w.wantStands(id, "waiting")
	line := one[int32](w, `SELECT line_id FROM siding.orders WHERE id = $1 AND ready_at = siding.clock() AND candidate`, id)
	if diff := cmp.Diff([]int32{line}, w.woken.take()); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	w.wantChunks(3)
	if got := w.read(id, "photo", 0); got != "" {
		t.Errorf("empty attachment reads %q", got)
	}
	_, err := w.attachments.Put(t.Context(), id, "scan", strings.NewReader("x"), 1)
	w.wantRefused(err, "attachment_complete", 409)
}

func TestPutWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4}, dbtest.WithConfig(db.Config{PreparedStatements: false}))
	id := w.add(expect("scan", "hello world"), expecting{"name": "photo"})
	w.put(id, "scan", "hello world")
	if got := w.read(id, "scan", 5); got != " world" {
		t.Errorf("got %q", got)
	}
	upload, err := w.attachments.PutPartial(t.Context(), id, "photo", []byte("hel"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.attachments.Append(t.Context(), upload.ID, 3, []byte("lo")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.attachments.Settle(t.Context(), upload.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.attachments.Expect(t.Context(), id, attachment.Expected{Name: "more"}, nadja, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.attachments.StoreReadable(t.Context(), "postgres", "timeout"); err != nil {
		t.Fatal(err)
	}
	if err := w.orders.Cancel(t.Context(), id, nadja, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.attachments.SweepUploads(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.advance(2)
	if n, err := w.attachments.SweepEnded(t.Context(), 1, 10); n != 2 || err != nil {
		t.Errorf("removed %d, %v; want 2", n, err)
	}
}

func TestPutRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attachment string
		body       io.Reader
		length     int64
		code       string
		status     int
	}{
		"shorter than announced":           {"any", strings.NewReader("hello"), 6, "size_mismatch", 422},
		"broke off":                        {"any", broken{strings.NewReader("hello"), io.ErrUnexpectedEOF}, 6, "size_mismatch", 422},
		"longer than announced":            {"any", strings.NewReader("hello"), 4, "size_mismatch", 422},
		"longer by a chunk":                {"any", strings.NewReader("hello!!!"), 4, "size_mismatch", 422},
		"announced more than allowed":      {"any", iotest.ErrReader(errors.New("must not be read")), 33, "attachment_too_large", 413},
		"more than allowed":                {"any", strings.NewReader(content(33)), -1, "attachment_too_large", 413},
		"the order expects more than that": {"big", iotest.ErrReader(errors.New("must not be read")), -1, "attachment_too_large", 413},
		"unknown attachment":               {"other", strings.NewReader("x"), 1, "attachment_not_found", 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, attachment.Config{ChunkBytes: 4, MaxBytes: 32})
			id := w.add(expecting{"name": "any"}, expecting{"name": "big", "size": 33})
			_, err := w.attachments.Put(t.Context(), id, test.attachment, test.body, test.length)
			w.wantRefused(err, test.code, test.status)
			w.wantState(id, "any", attachment.Pending)
			w.wantState(id, "big", attachment.Pending)
			w.wantStands(id, "waiting, blocked")
			w.wantChunks(0)
		})
	}
}

func TestPutKeepsNothingOfABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]error{
		"connection reset":                   errors.New("connection reset"),
		"truncated body of unknown length":   io.ErrUnexpectedEOF,
		"a body that never gives bytes":      io.ErrNoProgress,
		"the context is over with the body":  context.Canceled,
		"a wrapped error of the transport's": io.ErrClosedPipe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, attachment.Config{ChunkBytes: 4})
			id := w.add(expecting{"name": "any"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var body io.Reader = broken{strings.NewReader("hello world"), test}
			switch {
			case errors.Is(test, io.ErrNoProgress):
				body = idle{}
			case errors.Is(test, context.Canceled):
				reached, gate := make(chan struct{}), make(chan struct{})
				body = &gated{first: strings.NewReader("hello world"), rest: broken{strings.NewReader(""), test}, reached: reached, gate: gate}
				go func() {
					<-reached
					cancel()
					close(gate)
				}()
			}
			_, err := w.attachments.Put(ctx, id, "any", body, -1)
			if !errors.Is(err, test) {
				t.Errorf("got error %v, want %v", err, test)
			}
			w.wantState(id, "any", attachment.Pending)
			w.wantChunks(0)
		})
	}
}

// idle gives neither bytes nor an end.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestPutAbandonsWhenTheBodyPanics(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expecting{"name": "any"})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = w.attachments.Put(t.Context(), id, "any", io.MultiReader(strings.NewReader("hello"), nil), -1)
	}()
	w.wantState(id, "any", attachment.Pending)
	w.wantChunks(0)
}

func TestFailedCheckIsAttention(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content string
		problem string
		sum     string
	}{
		"other bytes":  {"hello wOrld", "sha256: expected " + hexSum([]byte("hello world")) + ", actual " + hexSum([]byte("hello wOrld")), hexSum([]byte("hello wOrld"))},
		"shorter":      {"hello", "size: expected 11 bytes, actual 5", hexSum([]byte("hello"))},
		"a bit longer": {"hello world", "", hexSum([]byte("hello world"))},
		"longer, read": {"hello world!!", "size: expected 11 bytes, actual 13", hexSum([]byte("hello world!!"))},
		"longer, cut":  {"hello world" + content(100), "size: expected 11 bytes, actual 16 or more (not read to the end)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, attachment.Config{ChunkBytes: 8})
			id := w.add(expect("scan", "hello world"))
			info := w.put(id, "scan", test.content)
			if info.Problem != test.problem || info.SHA256 != test.sum {
				t.Errorf("got problem %q, sum %q; want %q, %q", info.Problem, info.SHA256, test.problem, test.sum)
			}
			if test.problem == "" {
				w.wantStands(id, "waiting")
				return
			}
			if info.State != attachment.Failed || info.Late {
				t.Errorf("got %+v", info)
			}
			w.wantStands(id, "attention attachment_check_failed, blocked")
			detail := one[string](w, `SELECT detail ->> 'problem' FROM siding.attentions WHERE order_id = $1`, id)
			if detail != test.problem {
				t.Errorf("attention says %q, want %q", detail, test.problem)
			}
			_, _, err := w.attachments.Open(t.Context(), id, "scan", 0)
			w.wantRefused(err, "attachment_not_complete", 409)
		})
	}
}

func TestUploadAgainReplacesAFailedOne(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expect("scan", "hello world"))
	w.put(id, "scan", "hello")
	w.put(id, "scan", "hellO world")
	problem := one[string](w, `SELECT detail ->> 'problem' FROM siding.attentions WHERE order_id = $1`, id)
	if !strings.HasPrefix(problem, "sha256") {
		t.Errorf("attention shows an old result: %s", problem)
	}
	_, err := w.attachments.Put(t.Context(), id, "scan", broken{strings.NewReader("hello"), io.ErrClosedPipe}, -1)
	if err == nil {
		t.Error("no error")
	}
	w.wantState(id, "scan", attachment.Failed) // what broke off changes nothing

	info := w.put(id, "scan", "hello world")
	if info.State != attachment.Complete || !info.Late || info.Problem != "" {
		t.Errorf("got %+v", info)
	}
	w.wantStands(id, "attention attachment_check_failed")
	if err := w.orders.Resolve(t.Context(), id, "resume", nadja, "sent again"); err != nil {
		t.Fatal(err)
	}
	w.wantStands(id, "waiting")
	if _, err := w.attachments.SweepUploads(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.wantChunks(3)
}

func TestConcurrentPutsOneWins(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expect("scan", "hello world"))
	const senders = 4
	errs := make([]error, senders)
	var all, ready sync.WaitGroup
	ready.Add(senders)
	for i := range senders {
		all.Go(func() {
			body := &gated{first: strings.NewReader("hello"), rest: strings.NewReader(" world"), reached: make(chan struct{}), gate: done(&ready)}
			_, errs[i] = w.attachments.Put(t.Context(), id, "scan", body, 11)
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		w.wantRefused(err, "attachment_complete", 409)
	}
	if won != 1 {
		t.Errorf("%d uploads won", won)
	}
	w.wantStands(id, "waiting")
	w.wantChunks(3)
	if got := w.read(id, "scan", 0); got != "hello world" {
		t.Errorf("got %q", got)
	}
	if events := one[int](w, `SELECT count(*) FROM siding.events WHERE order_id = $1 AND kind = 'attachment_complete'`, id); events != 1 {
		t.Errorf("completed %d times", events)
	}
}

// done counts one down and gives a channel that is closed when all have.
func done(ready *sync.WaitGroup) <-chan struct{} {
	gate := make(chan struct{})
	var once sync.Once
	go func() {
		ready.Done()
		ready.Wait()
		once.Do(func() { close(gate) })
	}()
	return gate
}

func TestPutWhileTheOrderEnds(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expecting{"name": "scan"})
	reached, gate := make(chan struct{}), make(chan struct{})
	result := make(chan error)
	go func() {
		_, err := w.attachments.Put(t.Context(), id, "scan",
			&gated{first: strings.NewReader("hello wo"), rest: strings.NewReader("rld and more"), reached: reached, gate: gate}, -1)
		result <- err
	}()
	<-reached
	if err := w.orders.Cancel(t.Context(), id, nadja, "test"); err != nil {
		t.Fatal(err)
	}
	close(gate)
	w.wantRefused(<-result, "order_final", 409)
	w.wantChunks(0)
	w.wantState(id, "scan", attachment.Pending)
	_, err := w.attachments.Put(t.Context(), id, "scan", strings.NewReader("x"), 1)
	w.wantRefused(err, "order_final", 409)
	_, err = w.attachments.Put(t.Context(), id+1000, "scan", strings.NewReader("x"), 1)
	w.wantRefused(err, "order_not_found", 404)
}
