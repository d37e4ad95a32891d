package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

// queue applies a queue. A changed capacity or penalty holds from the next pick.
func (a *application) queue(ctx context.Context, q definition.Queue) (Change, error) {
	var (
		id       int32
		revision int
		capacity *int
		penalty  int
		removed  bool
	)
	err := a.row(ctx, `SELECT queue_id, revision, capacity, penalty, removed_at IS NOT NULL FROM siding.queues WHERE name = $1`, q.Name).
		Scan(&id, &revision, &capacity, &penalty, &removed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = a.exec(ctx, `INSERT INTO siding.queues (name, capacity, penalty, updated_at) VALUES ($1, $2, $3, siding.clock())`,
			q.Name, q.Capacity, q.Penalty)
		return Change{Action: Created, Revision: 1}, err
	case err != nil:
		return Change{}, err
	case !removed && penalty == q.Penalty && equal(capacity, q.Capacity):
		return Change{Action: Unchanged, Revision: revision}, nil
	}
	resources, err := a.lockListing(ctx, id)
	if err != nil {
		return Change{}, err
	}
	_, err = a.exec(ctx, `
		UPDATE siding.queues SET capacity = $2, penalty = $3, revision = revision + 1, updated_at = siding.clock(), removed_at = NULL
		WHERE queue_id = $1`, id, q.Capacity, q.Penalty)
	if err != nil {
		return Change{}, err
	}
	for _, r := range resources {
		if err := a.rebook(ctx, r); err != nil {
			return Change{}, err
		}
	}
	action := Changed
	if removed {
		action = Created
	}
	return Change{Action: action, Revision: revision + 1}, nil
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// lockListing locks the resources that list a queue, in name order: no pick is
// under way there while its numbers change.
func (a *application) lockListing(ctx context.Context, queue int32) ([]int32, error) {
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT r.resource_id FROM siding.resources r
		WHERE r.resource_id IN (SELECT resource_id FROM siding.resource_queues WHERE queue_id = $1)
		ORDER BY r.name FOR UPDATE`), queue)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// rebook writes the numbers of a resource that hold after a change.
func (a *application) rebook(ctx context.Context, resource int32) error {
	a.lines = append(a.lines, resource)
	_, err := a.exec(ctx, `SELECT siding.rebook($1)`, resource)
	return err
}

// deleteQueue removes a queue that no live order is assigned to and no
// resource lists.
func (a *application) deleteQueue(ctx context.Context, name string) error {
	var id int32
	err := a.row(ctx, `SELECT queue_id FROM siding.queues WHERE name = $1 AND removed_at IS NULL FOR UPDATE`, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return db.Refuse("unknown_queue", 404, "there is no queue %s", name)
	}
	if err != nil {
		return err
	}
	if err := a.refuseLive(ctx, "queue_in_use", "queue "+name+" has", `SELECT id FROM siding.orders WHERE queue_id = $1 LIMIT 1001`, id); err != nil {
		return err
	}
	rows, err := a.tx.Query(ctx, a.db.SQL(`
		SELECT r.kind || ' ' || r.name FROM siding.resource_queues q JOIN siding.resources r ON r.resource_id = q.resource_id
		WHERE q.queue_id = $1 AND r.removed_at IS NULL ORDER BY r.kind, r.name`), id)
	if err != nil {
		return err
	}
	listed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if len(listed) > 0 {
		r := db.Refuse("queue_listed", 409, "queue %s is listed by %s", name, strings.Join(listed, ", "))
		r.Hint = "Take it off their lists first."
		return r
	}
	_, err = a.exec(ctx, `UPDATE siding.queues SET removed_at = siding.clock(), revision = revision + 1 WHERE queue_id = $1`, id)
	return err
}

// refuseLive refuses when the statement finds live orders: how many, and the
// first few.
func (a *application) refuseLive(ctx context.Context, code, subject, statement string, args ...any) error {
	rows, err := a.tx.Query(ctx, a.db.SQL(statement), args...)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return err
	}
	count := fmt.Sprint(len(ids))
	if len(ids) > 1000 {
		count = "more than 1000"
	}
	first := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids[:min(5, len(ids))])), ", "), "[]")
	r := db.Refuse(code, 409, "%s %s live orders: %s", subject, count, first)
	r.Hint = "Let them end, cancel them, or assign them elsewhere first."
	return r
}
