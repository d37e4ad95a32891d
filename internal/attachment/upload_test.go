package attachment_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/attachment"
)

// Whatever the pieces in which bytes come, what is stored has the hash of the
// whole, and reads the same from every offset.
func TestAnyChunkingGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 16})
	replica := attachment.New(w.db, w.woken) // another chunk size
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
		id := w.add(expecting{"name": "x", "size": len(data), "sha256": hexSum(data)})
		var info attachment.Info
		var err error
		if rapid.Bool().Draw(t, "put") {
			body := io.Reader(bytes.NewReader(data))
			if rapid.Bool().Draw(t, "one byte") {
				body = iotest.OneByteReader(body)
			}
			length := rapid.SampledFrom([]int64{-1, int64(len(data))}).Draw(t, "length")
			info, err = w.attachments.Put(w.Context(), id, "x", iotest.DataErrReader(body), length)
		} else {
			var upload attachment.Upload
			if upload, err = w.attachments.Begin(w.Context(), id, "x"); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(data); {
				n := rapid.IntRange(0, len(data)-at).Draw(t, "piece")
				by := rapid.SampledFrom([]*attachment.Attachments{w.attachments, replica}).Draw(t, "replica")
				offset, err := by.Append(w.Context(), upload.ID, int64(at), data[at:at+n])
				if err != nil || offset != int64(at+n) {
					t.Fatalf("append %d at %d: %d, %v", n, at, offset, err)
				}
				at += n
			}
			info, err = w.attachments.Settle(w.Context(), upload.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.State != attachment.Complete || *info.Size != int64(len(data)) || info.SHA256 != hexSum(data) {
			t.Fatalf("got %+v", info)
		}
		offset := rapid.IntRange(0, len(data)).Draw(t, "offset")
		if got := w.read(id, "x", int64(offset)); got != string(data[offset:]) {
			t.Fatalf("from %d: got %q, want %q", offset, got, data[offset:])
		}
	})
}

func TestAppendComparesTheOffset(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{ChunkBytes: 4})
	id := w.add(expect("scan", "hello world"))
	upload, err := w.attachments.PutPartial(t.Context(), id, "scan", []byte("hello "))
	if err != nil {
		t.Fatal(err)
	}
	if info := w.info(id, "scan"); info.State != attachment.Uploading || info.Received != 6 || info.HasBytes {
		t.Errorf("got %+v", info)
	}
	w.wantStands(id, "waiting, blocked")
	for _, offset := range []int64{0, 5, 7} {
		_, err := w.attachments.Append(t.Context(), upload.ID, offset, []byte("x"))
		w.wantRefused(err, "upload_offset", 409)
	}
	if _, err := w.attachments.Append(t.Context(), upload.ID, 1<<30, []byte("x")); err == nil {
		t.Error("the limit of the store isn't kept")
	} else {
		w.wantRefused(err, "attachment_too_large", 413)
	}
	// Of several senders of the same piece one gets on.
	const senders = 5
	errs := make([]error, senders)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() { _, errs[i] = w.attachments.Append(t.Context(), upload.ID, 6, []byte("worl")) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		w.wantRefused(err, "upload_offset", 409)
	}
	if won != 1 {
		t.Fatalf("%d appends at one offset", won)
	}
	if _, err := w.attachments.Append(t.Context(), upload.ID, 10, []byte("d")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // settling twice changes nothing
		info, err := w.attachments.Settle(t.Context(), upload.ID)
		if err != nil || info.State != attachment.Complete {
			t.Fatalf("got %+v, %v", info, err)
		}
	}
	_, err = w.attachments.Append(t.Context(), upload.ID, 11, []byte("x"))
	w.wantRefused(err, "attachment_complete", 409)
	if found, err := w.attachments.Find(t.Context(), upload.ID); err != nil || !found.Ended || found.Received != 11 {
		t.Errorf("got %+v, %v", found, err)
	}
	// Abandoning what was checked does nothing.
	if err := w.attachments.Abandon(t.Context(), upload.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.read(id, "scan", 0); got != "hello world" {
		t.Errorf("got %q", got)
	}
}

func TestUploadsThatAreGone(t *testing.T) {
	t.Parallel()
	w := setup(t, attachment.Config{})
	id := w.add(expecting{"name": "scan"})
	_, err := w.attachments.Append(t.Context(), 4711, 0, []byte("x"))
	w.wantRefused(err, "upload_not_found", 404)
	_, err = w.attachments.Settle(t.Context(), 4711)
	w.wantRefused(err, "upload_not_found", 404)

	upload, err := w.attachments.PutPartial(t.Context(), id, "scan", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.attachments.Discard(t.Context(), id, "scan", nadja, "the wrong file"); err != nil {
		t.Fatal(err)
	}
	_, err = w.attachments.Append(t.Context(), upload.ID, 5, []byte("x"))
	w.wantRefused(err, "upload_ended", 409)
	_, err = w.attachments.Settle(t.Context(), upload.ID)
	w.wantRefused(err, "upload_ended", 409)
	w.wantState(id, "scan", attachment.Discarded)

	upload, err = w.attachments.PutPartial(t.Context(), id, "scan", []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	w.wantState(id, "scan", attachment.Uploading)
	if err := w.attachments.Abandon(t.Context(), upload.ID); err != nil {
		t.Fatal(err)
	}
	w.wantState(id, "scan", attachment.Pending)
	if _, err := w.attachments.SweepUploads(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.wantChunks(0)
	w.advance(2 * 3600 * 1e9)
	if _, err := w.attachments.SweepUploads(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if rows := one[int](w, `SELECT count(*) FROM siding.uploads`); rows != 0 {
		t.Errorf("%d rows of uploads stay", rows)
	}
}

// 50 MiB pass through in the memory of some chunks.
func TestLargeAttachmentsNeedLittleMemory(t *testing.T) {
	w := setup(t, attachment.Config{}) // not parallel: it measures the heap
	const size = 50 << 20
	id := w.add(expecting{"name": "big", "size": size})
	var peak uint64
	measure := func() {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}
	measure()
	before := peak
	info, err := w.attachments.Put(t.Context(), id, "big", &zeros{left: size, every: 10 << 20, measure: measure}, size)
	if err != nil || info.State != attachment.Complete {
		t.Fatalf("got %+v, %v", info, err)
	}
	r, _, err := w.attachments.Open(t.Context(), id, "big", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read, buf := int64(0), make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		read += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if read%(10<<20) < int64(n) {
			measure()
		}
	}
	if read != size {
		t.Errorf("read %d bytes, want %d", read, size)
	}
	t.Logf("heap: %d MiB before, at most %d MiB", before>>20, peak>>20)
	if peak > before+16<<20 {
		t.Errorf("the heap grew by %d MiB for chunks of 1 MiB", (peak-before)>>20)
	}
}

// zeros gives zero bytes and measures now and then.
type zeros struct {
	left, since, every int
	measure            func()
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	clear(p[:n])
	z.left -= n
	if z.since += n; z.since >= z.every {
		z.since = 0
		z.measure()
	}
	return n, nil
}
