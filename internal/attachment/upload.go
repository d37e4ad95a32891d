package attachment

import (
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Upload is one sending of an attachment's bytes.
type Upload struct {
	ID    int64
	Order int64
	Name  string
	// Received is the offset at which it stands, in bytes.
	Received int64
	// ExpectedSize is the size in bytes that was announced with the order, nil
	// if none was.
	ExpectedSize *int64
	// Ended says that it takes no bytes any more: it was checked, replaced,
	// abandoned or discarded.
	Ended bool
}

// Begin begins an upload of an attachment that isn't complete. Several may be
// under way at once; the first that passes the check wins.
//
// Refusals: order_not_found, order_final, attachment_not_found,
// attachment_complete, attachment_too_large.
func (a *Attachments) Begin(ctx context.Context, id int64, name string) (Upload, error) {
	var upload Upload
	err := a.db.Tx(ctx, func(tx pgx.Tx) error {
		upload = Upload{Order: id, Name: name}
		return tx.QueryRow(ctx, a.db.SQL(`SELECT upload, expected FROM siding.begin_upload($1, $2, $3)`), id, name, a.config.MaxBytes).
			Scan(&upload.ID, &upload.ExpectedSize)
	})
	if err != nil {
		return Upload{}, fmt.Errorf("begin upload of attachment %s of order %d: %w", name, id, err)
	}
	return upload, nil
}

// Find returns an upload. It refuses with upload_not_found, which is also the
// answer an hour or more after one has been thrown away.
func (a *Attachments) Find(ctx context.Context, uploadID int64) (Upload, error) {
	upload, _, err := a.find(ctx, uploadID)
	if err != nil {
		return Upload{}, fmt.Errorf("find upload %d: %w", uploadID, err)
	}
	return upload, nil
}

// find returns an upload and the state of its hash.
func (a *Attachments) find(ctx context.Context, uploadID int64) (Upload, []byte, error) {
	u := Upload{ID: uploadID}
	var state []byte
	err := a.db.Pool.QueryRow(ctx, a.db.SQL(`
		SELECT a.order_id, a.name, u.received, a.expected_size, u.settled_at IS NOT NULL OR u.dropped_at IS NOT NULL, u.sha256_state
		FROM siding.uploads u JOIN siding.attachments a ON a.attachment_id = u.attachment_id WHERE u.upload_id = $1`), uploadID).
		Scan(&u.Order, &u.Name, &u.Received, &u.ExpectedSize, &u.Ended, &state)
	if errors.Is(err, pgx.ErrNoRows) {
		err = db.Refuse("upload_not_found", 404, "there is no upload %d", uploadID)
	}
	return u, state, err
}

// Append stores data at an offset, which must be where the upload stands: of
// two senders one gets on. It returns the offset up to which everything is
// stored for good, also with an error, since data that is longer than a chunk
// is stored in several transactions. Append doesn't compare with the expected
// size; Settle does.
//
// Refusals: upload_not_found, upload_offset (the detail has the real one),
// upload_ended, attachment_complete, attachment_too_large, order_final.
func (a *Attachments) Append(ctx context.Context, uploadID, offset int64, data []byte) (int64, error) {
	fail := func(err error) (int64, error) {
		return offset, fmt.Errorf("append to upload %d at %d: %w", uploadID, offset, err)
	}
	if size := offset + int64(len(data)); size > a.config.MaxBytes {
		return fail(a.tooLarge(size))
	}
	_, state, err := a.find(ctx, uploadID)
	if err != nil {
		return fail(err)
	}
	// Whether the state belongs to this offset is what the compare-and-set says.
	sum, err := resumeHash(state)
	if err != nil {
		return fail(err)
	}
	for {
		n := min(len(data), a.config.ChunkBytes)
		if err := a.appendChunk(ctx, uploadID, offset, data[:n], sum); err != nil {
			return fail(err)
		}
		offset += int64(n)
		if data = data[n:]; len(data) == 0 {
			return offset, nil
		}
	}
}

// appendChunk stores one chunk, with the hash that runs along.
func (a *Attachments) appendChunk(ctx context.Context, uploadID, offset int64, data []byte, sum hash.Hash) error {
	sum.Write(data) // never fails
	state, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return fmt.Errorf("state of SHA-256: %w", err)
	}
	return a.db.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, a.db.SQL(`SELECT siding.append_chunk($1, $2, $3, $4)`), uploadID, offset, data, state)
		return err
	})
}

// resumeHash returns a SHA-256 that goes on from a stored state; nil is the
// beginning.
func resumeHash(state []byte) (hash.Hash, error) {
	sum := sha256.New()
	if state != nil {
		if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
			return nil, fmt.Errorf("state of SHA-256: %w", err)
		}
	}
	return sum, nil
}

// Settle says that all bytes of an upload are there, and makes the check. If it
// passes, the attachment is complete and the order's gate opens with the last
// one; other uploads of the attachment are thrown away. If it fails, the order
// goes to attention and the attachment is Failed; that is no error. Settling
// twice changes nothing.
//
// Refusals: upload_not_found, upload_ended, attachment_complete, order_final.
func (a *Attachments) Settle(ctx context.Context, uploadID int64) (Info, error) {
	upload, state, err := a.find(ctx, uploadID)
	if err != nil {
		return Info{}, fmt.Errorf("settle upload %d: %w", uploadID, err)
	}
	sum, err := resumeHash(state)
	if err != nil {
		return Info{}, fmt.Errorf("settle upload %d: %w", uploadID, err)
	}
	return a.settle(ctx, upload, sum.Sum(nil))
}

// settle makes the check of an upload as received; without a hash it was cut.
func (a *Attachments) settle(ctx context.Context, upload Upload, sum []byte) (Info, error) {
	var lines []int32
	once := func() error {
		return a.db.Tx(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, a.db.SQL(`SELECT lines FROM siding.settle_upload($1, $2, $3, $4, $5)`),
				upload.Order, upload.Name, upload.ID, upload.Received, sum).Scan(&lines)
		})
	}
	err := once()
	if errors.Is(err, db.ErrCommitUnknown) {
		err = once() // if it was committed, this changes nothing
	}
	if err != nil {
		return Info{}, fmt.Errorf("settle attachment %s of order %d: %w", upload.Name, upload.Order, err)
	}
	a.waker.Wake(lines...)
	info, _, err := a.info(ctx, upload.Order, upload.Name)
	if err != nil {
		return Info{}, fmt.Errorf("read attachment %s of order %d: %w", upload.Name, upload.Order, err)
	}
	return info, nil
}

// Abandon throws an upload away that was not checked, and deletes its bytes.
// One that was checked, or is gone, is left as it is.
func (a *Attachments) Abandon(ctx context.Context, uploadID int64) error {
	err := a.db.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, a.db.SQL(`SELECT siding.abandon_upload($1)`), uploadID)
		return err
	})
	if err == nil {
		_, err = a.purge(ctx, &uploadID)
	}
	if err != nil {
		return fmt.Errorf("abandon upload %d: %w", uploadID, err)
	}
	return nil
}

func (a *Attachments) tooLarge(size int64) error {
	r := db.Refuse("attachment_too_large", 413, "an attachment of %d bytes or more; the store takes %d", size, a.config.MaxBytes)
	r.Hint = "Use another store, or raise the limit of this one."
	return r
}
