package attachment

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/siding-dev/siding/internal/db"
)

// Open returns the bytes of a complete attachment from an offset on, of a live
// order or an ended one. They are read chunk by chunk as the reader asks;
// between its reads no connection is held. The reads end with ctx. When a
// person discards the bytes meanwhile, a read fails with io.ErrUnexpectedEOF in
// its chain. One reader is for one goroutine.
//
// Refusals: order_not_found, attachment_not_found; attachment_not_complete;
// attachment_has_no_bytes (404, it was marked complete without any);
// attachment_removed (410, the retention of an ended order is over);
// invalid_offset (416).
func (a *Attachments) Open(ctx context.Context, id int64, name string, offset int64) (io.ReadCloser, Info, error) {
	fail := func(err error) (io.ReadCloser, Info, error) {
		return nil, Info{}, fmt.Errorf("open attachment %s of order %d: %w", name, id, err)
	}
	info, upload, err := a.info(ctx, id, name)
	switch {
	case err != nil:
		return fail(err)
	case info.State != Complete:
		return fail(db.Refuse("attachment_not_complete", 409, "attachment %s of order %d is %s", name, id, info.State))
	case info.Size == nil:
		return fail(db.Refuse("attachment_has_no_bytes", 404, "attachment %s of order %d was marked complete without bytes", name, id))
	case !info.HasBytes:
		return fail(db.Refuse("attachment_removed", 410, "the bytes of attachment %s of order %d were removed some time after its end", name, id))
	case offset < 0 || offset > *info.Size:
		return fail(db.Refuse("invalid_offset", 416, "attachment %s of order %d has %d bytes; there is no offset %d", name, id, *info.Size, offset))
	}
	return &reader{ctx: ctx, attachments: a, upload: upload, offset: offset, size: *info.Size}, info, nil
}

// reader reads the chunks of one upload.
type reader struct {
	ctx         context.Context
	attachments *Attachments
	upload      int64
	offset      int64 // of the next byte to fetch
	size        int64
	chunk       []byte // reused
	rest        []byte // of chunk, not read yet
	closed      bool
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, os.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 {
		if r.offset >= r.size {
			return 0, io.EOF
		}
		if err := r.fetch(); err != nil {
			return 0, fmt.Errorf("read upload %d at %d: %w", r.upload, r.offset, err)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fetch reads the next chunk, or the rest of it.
func (r *reader) fetch() error {
	a := r.attachments
	ctx, cancel := context.WithTimeout(r.ctx, a.db.Config().TransactionTimeout)
	defer cancel()
	rows, err := a.db.Pool.Query(ctx, a.db.SQL(`
		SELECT substring(data FROM ($2::bigint - start_offset + 1)::int) FROM siding.upload_chunks
		WHERE upload_id = $1 AND start_offset <= $2::bigint ORDER BY start_offset DESC LIMIT 1`), r.upload, r.offset)
	if err != nil {
		return err
	}
	var data pgtype.DriverBytes // of the connection, so copied
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		r.chunk = append(r.chunk[:0], data...)
		return nil
	})
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return fmt.Errorf("the bytes were discarded: %w", io.ErrUnexpectedEOF)
	}
	r.rest = r.chunk
	r.offset += int64(len(r.chunk))
	return nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.closed {
		return fmt.Errorf("close reader of upload %d: %w", r.upload, os.ErrClosed)
	}
	r.closed = true
	r.chunk, r.rest = nil, nil
	return nil
}
