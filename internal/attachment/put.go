package attachment

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/siding-dev/siding/internal/db"
)

// abandonTimeout limits the cleaning up after a sender that is gone.
const abandonTimeout = 30 * time.Second

// Put receives all bytes of an attachment from body, checks them (see Settle)
// and returns the result. Length is the size in bytes that the sender
// announced, -1 if it didn't.
//
// It is all or nothing: when the body breaks off, isn't as long as announced or
// is too large for the store, nothing of it stays. When it is longer than the
// order expects, it isn't read to its end; that is a failed check, and the
// attachment's size is what was read by then. A failed check is no error: look
// at the state of the result.
//
// Refusals: those of Begin; size_mismatch, attachment_too_large, order_final;
// attachment_complete also when another upload was faster.
func (a *Attachments) Put(ctx context.Context, id int64, name string, body io.Reader, length int64) (Info, error) {
	if length > a.config.MaxBytes {
		return Info{}, fmt.Errorf("put attachment %s of order %d: %w", name, id, a.tooLarge(length))
	}
	upload, err := a.Begin(ctx, id, name)
	if err != nil {
		return Info{}, err
	}
	ended := false
	abandon := func() error {
		// The sender may be gone, and the context with it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer cancel()
		return a.Abandon(ctx, upload.ID)
	}
	defer func() {
		if !ended { // the body panicked
			_ = abandon() // the panic goes on; the sweeper finds what is left
		}
	}()
	sum, err := a.receive(ctx, &upload, body, length)
	var info Info
	if err == nil {
		info, err = a.settle(ctx, upload, sum)
	}
	ended = true
	if err != nil {
		err = fmt.Errorf("put attachment %s of order %d: %w", name, id, err)
		return Info{}, errors.Join(err, abandon())
	}
	return info, nil
}

// receive stores a body chunk by chunk and returns its SHA-256; nil if it was
// cut because it is longer than expected.
func (a *Attachments) receive(ctx context.Context, upload *Upload, body io.Reader, length int64) ([]byte, error) {
	chunk := a.buffers.Get().(*[]byte)
	defer a.buffers.Put(chunk)
	buf := *chunk
	sum := sha256.New()
	for {
		n, err := fill(body, buf)
		received := upload.Received + int64(n)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			if length >= 0 && errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, sizeMismatch(length, received, err)
			}
			return nil, fmt.Errorf("read body at %d: %w", received, err)
		case length >= 0 && (received > length || err != nil && received < length):
			return nil, sizeMismatch(length, received, err)
		case received > a.config.MaxBytes:
			return nil, a.tooLarge(received)
		}
		if n > 0 {
			if err := a.appendChunk(ctx, upload.ID, upload.Received, buf[:n], sum); err != nil {
				return nil, err
			}
			upload.Received = received
		}
		if err != nil {
			return sum.Sum(nil), nil
		}
		if upload.ExpectedSize != nil && received > *upload.ExpectedSize {
			return nil, nil
		}
	}
}

func sizeMismatch(announced, received int64, cause error) error {
	if cause == nil {
		return db.Refuse("size_mismatch", 422, "%d bytes were announced and more came", announced)
	}
	return db.Refuse("size_mismatch", 422, "%d bytes were announced and %d came: %w", announced, received, cause)
}

// maxEmptyReads is how often in a row a body may give nothing.
const maxEmptyReads = 100

// fill reads until buf is full or the body ends, with the body's own error.
// io.ReadFull can't be used: it gives the same error for a body that has ended
// and for one that broke off.
func fill(body io.Reader, buf []byte) (int, error) {
	n, empty := 0, 0
	for n < len(buf) {
		m, err := body.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
		if empty++; m > 0 {
			empty = 0
		}
		if empty == maxEmptyReads {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// PutPartial begins an upload, stores bytes and leaves it unfinished, as a
// sender does that was interrupted: the attachment is Uploading until an upload
// is settled or a person discards the bytes.
//
// Refusals: those of Begin and Append.
func (a *Attachments) PutPartial(ctx context.Context, id int64, name string, data []byte) (Upload, error) {
	upload, err := a.Begin(ctx, id, name)
	if err != nil {
		return Upload{}, err
	}
	upload.Received, err = a.Append(ctx, upload.ID, 0, data)
	return upload, err
}
