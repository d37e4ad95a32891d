package pgworld

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/scenario"
)

// Upload sends bytes. Unless it is partial they are all, and are checked.
func (w *World) Upload(ctx context.Context, u scenario.Upload) error {
	id, err := w.id(ctx, u.Order)
	if err != nil {
		return err
	}
	if u.Partial {
		_, err = w.attachments.PutPartial(ctx, id, u.Attachment, u.Bytes)
		return err
	}
	_, err = w.attachments.Put(ctx, id, u.Attachment, bytes.NewReader(u.Bytes), int64(len(u.Bytes)))
	return err
}

// Complete marks an attachment complete that states neither size nor hash.
func (w *World) Complete(ctx context.Context, order, attachment string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.attachments.Complete(ctx, id, attachment, person)
}

// Attach adds an expected attachment.
func (w *World) Attach(ctx context.Context, order string, a scenario.NewAttachment) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.attachments.Expect(ctx, id, attachment.Expected{Name: a.Name, Size: a.Size, SHA256: a.SHA256}, person, "scenario")
}

// Discard throws the bytes of an attachment away.
func (w *World) Discard(ctx context.Context, order, attachment, reason string) error {
	id, err := w.id(ctx, order)
	if err != nil {
		return err
	}
	return w.attachments.Discard(ctx, id, attachment, person, reason)
}

// failedReads make the facts of a store unknown when they took 30 s.
const failedReads = 3

// SetStoreReadable notes that the facts of all stores could be read, or as many
// failed reads as make them unknown, the first of which is old enough.
func (w *World) SetStoreReadable(ctx context.Context, readable bool) error {
	stores, err := w.names(ctx, `SELECT store FROM siding.stores ORDER BY store`)
	if err != nil {
		return fmt.Errorf("list stores: %w", err)
	}
	for _, store := range stores {
		if readable {
			if err := w.attachments.StoreReadable(ctx, store, ""); err != nil {
				return err
			}
			continue
		}
		err := w.db.Tx(ctx, func(tx pgx.Tx) error {
			for range failedReads {
				if _, err := tx.Exec(ctx, w.db.SQL(`SELECT siding.note_store_read($1, 'scenario')`), store); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, w.db.SQL(`
					UPDATE siding.stores SET first_failure_at = least(first_failure_at, siding.clock() - interval '30 seconds') WHERE store = $1`), store)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("make store %s unreadable: %w", store, err)
		}
	}
	return nil
}
