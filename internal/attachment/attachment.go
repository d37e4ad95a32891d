// Package attachment keeps the attachments of orders: what is expected, the
// bytes on their way in, the check, and the bytes on their way out.
//
// The rules stand in the room's routines (sql/). Bytes are stored in Postgres,
// in chunks of at most Config.ChunkBytes; each chunk is one short transaction
// that advances the upload's offset by compare-and-set and keeps the state of
// the running SHA-256 beside it, so any replica can go on with an upload. No
// method holds a connection while it waits for a sender or a reader, and none
// needs more memory than one chunk.
package attachment

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/order"
)

// Config says how bytes are stored. The zero value of each field means its
// default.
type Config struct {
	// MaxBytes is the size up to which the Postgres store takes an attachment.
	// Default: 1 GiB.
	MaxBytes int64

	// ChunkBytes is the size of the rows that bytes are stored in, and so the
	// memory that an upload or a reader needs. Default: 1 MiB.
	ChunkBytes int
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = 1 << 20
	}
	return c
}

// Validate reports everything that is wrong with the configuration, after
// defaults, in one error.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.MaxBytes < 1 {
		errs = append(errs, fmt.Errorf("largest attachment: %d bytes, must be at least 1", c.MaxBytes))
	}
	if c.ChunkBytes < 1 || c.ChunkBytes > maxChunkBytes {
		errs = append(errs, fmt.Errorf("chunk: %d bytes, must be from 1 to %d", c.ChunkBytes, maxChunkBytes))
	}
	return errors.Join(errs...)
}

// maxChunkBytes keeps a chunk far from the limits of one row and one message.
const maxChunkBytes = 64 << 20

// Attachments is the room's entrance.
type Attachments struct {
	db      *db.DB
	waker   db.Waker
	config  Config
	buffers sync.Pool // *[]byte of one chunk
}

// New returns the attachments of a schema with the default configuration.
// Wake-ups go to waker.
func New(d *db.DB, waker db.Waker) *Attachments {
	return newWith(d, waker, Config{}.WithDefaults())
}

// NewWith is New with a configuration.
func NewWith(d *db.DB, waker db.Waker, config Config) (*Attachments, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	return newWith(d, waker, config.WithDefaults()), nil
}

func newWith(d *db.DB, waker db.Waker, config Config) *Attachments {
	a := &Attachments{db: d, waker: waker, config: config}
	a.buffers.New = func() any {
		buf := make([]byte, config.ChunkBytes)
		return &buf
	}
	return a
}

// State is the state of an attachment.
type State string

// The states (docs/concepts.md, Attachments).
const (
	Pending   State = "pending"   // nothing has come
	Uploading State = "uploading" // bytes have come or are coming
	Complete  State = "complete"  // all bytes are there and the check passed
	Failed    State = "failed"    // all bytes were there and the check failed
	Unknown   State = "unknown"   // can't be read
	Discarded State = "discarded" // a person threw the bytes away
)

// Info is what is known about an attachment.
type Info struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// ExpectedSize is the size in bytes that was announced with the order, nil
	// if none was.
	ExpectedSize *int64 `json:"expected_size,omitempty"`
	// ExpectedSHA256 is the hash that was announced, in hex; empty if none was.
	ExpectedSHA256 string `json:"expected_sha256,omitempty"`
	// Size is what was received, in bytes, once checked; nil before that, and
	// for one that was marked complete without bytes.
	Size *int64 `json:"size,omitempty"`
	// SHA256 is the hash of what was received, in hex, once checked; empty for
	// an upload that was cut because it was longer than expected.
	SHA256 string `json:"sha256,omitempty"`
	// Received is how many bytes of an unfinished upload are stored; of several
	// the one that is furthest.
	Received int64 `json:"received,omitempty"`
	// HasBytes says that there are bytes to read: false when it was marked
	// complete without any, and after the retention.
	HasBytes bool `json:"has_bytes"`
	// Problem says what the check found, expected and actual.
	Problem string `json:"problem,omitempty"`
	// Late says that it became complete when the order was already in attention.
	Late bool `json:"late,omitempty"`
	// Store is where the bytes lie.
	Store     string    `json:"store"`
	AddedAt   time.Time `json:"added_at"`
	ChangedAt time.Time `json:"changed_at"`
}

const infoColumns = `
	a.name, a.state::text, a.expected_size, a.expected_sha256, a.size, a.sha256, coalesce(a.problem, ''), a.late,
	a.store, a.added_at, a.changed_at, a.upload_id,
	coalesce((SELECT max(u.received) FROM siding.uploads u
	          WHERE u.attachment_id = a.attachment_id AND u.settled_at IS NULL AND u.dropped_at IS NULL), 0)`

// scanInfo reads a row of infoColumns; the upload is that with the bytes, 0 if
// there is none.
func scanInfo(row pgx.Row) (info Info, upload int64, err error) {
	var expected, actual []byte
	var id *int64
	err = row.Scan(&info.Name, &info.State, &info.ExpectedSize, &expected, &info.Size, &actual, &info.Problem, &info.Late,
		&info.Store, &info.AddedAt, &info.ChangedAt, &id, &info.Received)
	if err != nil {
		return Info{}, 0, err
	}
	info.ExpectedSHA256 = hex.EncodeToString(expected)
	info.SHA256 = hex.EncodeToString(actual)
	if id != nil {
		info.HasBytes, upload = true, *id
	}
	return info, upload, nil
}

// List returns the attachments of an order, live or ended, by name. It refuses
// with order_not_found.
func (a *Attachments) List(ctx context.Context, id int64) ([]Info, error) {
	rows, err := a.db.Pool.Query(ctx, a.db.SQL(`SELECT `+infoColumns+` FROM siding.attachments a WHERE a.order_id = $1 ORDER BY a.name`), id)
	if err != nil {
		return nil, fmt.Errorf("list attachments of order %d: %w", id, err)
	}
	infos, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Info, error) {
		info, _, err := scanInfo(row)
		return info, err
	})
	if err == nil && len(infos) == 0 {
		err = a.orderExists(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("list attachments of order %d: %w", id, err)
	}
	return infos, nil
}

// info reads one attachment, and the upload that has its bytes.
func (a *Attachments) info(ctx context.Context, id int64, name string) (Info, int64, error) {
	row := a.db.Pool.QueryRow(ctx, a.db.SQL(`SELECT `+infoColumns+` FROM siding.attachments a WHERE a.order_id = $1 AND a.name = $2`), id, name)
	info, upload, err := scanInfo(row)
	if errors.Is(err, pgx.ErrNoRows) {
		if err := a.orderExists(ctx, id); err != nil {
			return Info{}, 0, err
		}
		return Info{}, 0, db.Refuse("attachment_not_found", 404, "order %d expects no attachment %s", id, name)
	}
	return info, upload, err
}

func (a *Attachments) orderExists(ctx context.Context, id int64) error {
	var exists bool
	err := a.db.Pool.QueryRow(ctx, a.db.SQL(`
		SELECT EXISTS (SELECT FROM siding.orders WHERE id = $1) OR EXISTS (SELECT FROM siding.outcomes WHERE order_id = $1)`), id).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		return db.Refuse("order_not_found", 404, "there is no order %d", id)
	}
	return nil
}

// decide runs one decision in a transaction and wakes the lines it returns.
func (a *Attachments) decide(ctx context.Context, what, statement string, args ...any) error {
	var lines []int32
	err := a.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, a.db.SQL(statement), args...).Scan(&lines)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	a.waker.Wake(lines...)
	return nil
}

// Complete marks an attachment complete that states neither size nor hash and
// has no bytes. Twice changes nothing.
//
// Refusals: order_not_found, order_final, attachment_not_found,
// attachment_needs_bytes (it states a size or hash), attachment_uploading
// (bytes of an unfinished upload are there).
func (a *Attachments) Complete(ctx context.Context, id int64, name string, person order.Person) error {
	return a.decide(ctx, fmt.Sprintf("complete attachment %s of order %d", name, id),
		`SELECT siding.mark_attachment_complete($1, $2, $3)`, id, name, person.String())
}

// Expected is an attachment that an order is to wait for.
type Expected struct {
	Name string
	// Size in bytes and SHA256 in hex are checked when the bytes are there. Nil
	// and empty: unknown.
	Size   *int64
	SHA256 string
}

// Expect adds an expected attachment to an order that has not started. If the
// order waited for none, its wait limit is counted from now.
//
// Refusals: order_not_found, order_final, order_running, order_started,
// attachment_exists, invalid_attachment.
func (a *Attachments) Expect(ctx context.Context, id int64, expected Expected, person order.Person, reason string) error {
	return a.decide(ctx, fmt.Sprintf("expect attachment %s of order %d", expected.Name, id), `
		SELECT siding.expect_attachment($1, jsonb_strip_nulls(jsonb_build_object('name', $2::text, 'size', $3::bigint, 'sha256', nullif($4::text, ''))), $5, $6)`,
		id, expected.Name, expected.Size, expected.SHA256, person.String(), reason)
}

// Discard throws the bytes of an attachment away, unfinished, failed or
// complete ones, and closes the order's gate again. It needs a reason. Where
// there are none, nothing changes.
//
// Refusals: reason_required, order_not_found, order_final, order_running,
// attachment_not_found.
func (a *Attachments) Discard(ctx context.Context, id int64, name string, person order.Person, reason string) error {
	return a.decide(ctx, fmt.Sprintf("discard attachment %s of order %d", name, id),
		`SELECT siding.discard_attachment($1, $2, $3, $4)`, id, name, person.String(), reason)
}

// StoreReadable notes that the facts of a store could be read (problem is
// empty), or why not. Three failures in a row over 30 s make them unknown, one
// success known again; lines follow at the keeper's next tick.
func (a *Attachments) StoreReadable(ctx context.Context, store, problem string) error {
	err := a.db.Tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, a.db.SQL(`SELECT siding.note_store_read($1, nullif($2::text, ''))`), store, problem)
		return err
	})
	if err != nil {
		return fmt.Errorf("note read of store %s: %w", store, err)
	}
	return nil
}
