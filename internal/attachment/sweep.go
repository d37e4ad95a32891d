package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultKeepEnded is how long the bytes of an ended order are kept unless the
// configuration says otherwise.
const DefaultKeepEnded = 30 * 24 * time.Hour

// What one transaction of a sweeper does at most.
const (
	sweepUploads = 100 // rows of uploads
	purgeChunks  = 64  // rows of chunks, 64 MiB by default
)

var errNegative = errors.New("must not be negative")

// SweepUploads abandons the uploads of ended orders that were never finished
// and got no bytes for olderThan, and deletes the chunks of everything that was
// thrown away. It returns how many uploads it abandoned. As long as an order
// lives its unfinished uploads stay, and are shown, until a person discards
// them. It works in short transactions; any number of replicas may call it.
func (a *Attachments) SweepUploads(ctx context.Context, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, fmt.Errorf("sweep uploads untouched for %s: %w", olderThan, errNegative)
	}
	abandoned, err := a.batches(ctx, sweepUploads, `SELECT siding.abandon_leftovers($1, $2)`, olderThan, sweepUploads)
	if err == nil {
		_, err = a.purge(ctx, nil)
	}
	if err != nil {
		return abandoned, fmt.Errorf("sweep uploads: %w", err)
	}
	return abandoned, nil
}

// SweepEnded throws the bytes of orders away that ended longer than keep ago,
// of at most limit attachments, and deletes their chunks. It returns how many
// attachments lost their bytes; what is known about them stays. Keep 0 keeps
// bytes for ever.
func (a *Attachments) SweepEnded(ctx context.Context, keep time.Duration, limit int) (int, error) {
	switch {
	case keep < 0:
		return 0, fmt.Errorf("sweep bytes of orders that ended %s ago: %w", keep, errNegative)
	case keep == 0 || limit < 1:
		return 0, nil
	}
	dropped := 0
	for dropped < limit {
		batch := min(sweepUploads, limit-dropped)
		n, err := a.once(ctx, `SELECT siding.drop_expired_bytes($1, $2)`, keep, batch)
		if err == nil {
			_, err = a.purge(ctx, nil)
		}
		dropped += n
		if err != nil {
			return dropped, fmt.Errorf("sweep bytes of ended orders: %w", err)
		}
		if n < batch {
			break
		}
	}
	return dropped, nil
}

// purge deletes the chunks of dropped uploads, of one or (nil) of all.
func (a *Attachments) purge(ctx context.Context, uploadID *int64) (int, error) {
	return a.batches(ctx, purgeChunks, `SELECT siding.purge_uploads($1, $2)`, uploadID, purgeChunks)
}

// batches runs a statement, each time in a transaction of its own, until it
// does less than size, and returns the sum of what it did.
func (a *Attachments) batches(ctx context.Context, size int, statement string, args ...any) (int, error) {
	done := 0
	for {
		n, err := a.once(ctx, statement, args...)
		done += n
		if err != nil || n < size {
			return done, err
		}
	}
}

func (a *Attachments) once(ctx context.Context, statement string, args ...any) (int, error) {
	var n int
	err := a.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, a.db.SQL(statement), args...).Scan(&n)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
