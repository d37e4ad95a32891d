package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Counting takes at most this share of the time: the numbers may get the older
// the longer it takes to count.
const (
	minCountAge   = 2 * time.Second
	countingShare = 20
)

// counting remembers how long the last count took.
type counting struct {
	mu   sync.Mutex
	took time.Duration
}

// Count is the length of a list at CountedAt.
type Count struct {
	Queue     string    `json:"queue"`
	List      string    `json:"list"`
	Orders    int64     `json:"orders"`
	CountedAt time.Time `json:"counted_at"`
	// AgeMillis is how old the number is, in milliseconds.
	AgeMillis int64 `json:"age_ms"`
}

// Counts returns the lengths of the lists of all queues and (None) of the
// orders without one, as last counted by RefreshCounts. It counts nothing
// itself; a queue that is younger than the last count isn't there yet.
func (q *Queues) Counts(ctx context.Context) ([]Count, error) {
	rows, err := q.db.Pool.Query(ctx, q.db.SQL(`
		SELECT coalesce(n.name, $1), c.list, c.orders, c.counted_at,
		       greatest(0, 1000 * extract(epoch FROM siding.clock() - c.counted_at))::bigint
		FROM siding.list_counts c LEFT JOIN siding.queues n ON n.queue_id = c.queue_id
		WHERE n.removed_at IS NULL
		ORDER BY c.queue_id > 0, n.name, array_position($2::text[], c.list)`), None, Lists())
	if err != nil {
		return nil, fmt.Errorf("read counts of lists: %w", err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
	if err != nil {
		return nil, fmt.Errorf("read counts of lists: %w", err)
	}
	return counts, nil
}

// RefreshCounts counts the lists, unless the numbers are young or another
// replica is counting; it tells whether it did. Every replica calls it every
// few seconds.
func (q *Queues) RefreshCounts(ctx context.Context) (bool, error) {
	q.counts.mu.Lock()
	defer q.counts.mu.Unlock()
	var counted bool
	start := time.Now()
	err := q.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, q.db.SQL(`SELECT siding.refresh_list_counts(make_interval(secs => $1))`),
			max(minCountAge, countingShare*q.counts.took).Seconds()).Scan(&counted)
	})
	if err != nil {
		return false, fmt.Errorf("count lists: %w", db.Wrap(err))
	}
	if counted {
		q.counts.took = time.Since(start)
	}
	return counted, nil
}
