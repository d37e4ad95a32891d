package invariant

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/selector"
)

// booking is a row of the log of picks.
type booking struct {
	No, Order           int64 // Order 0: a changed definition set the numbers
	Queue               int
	Waived              bool
	Queues              []int
	Served, PenaltyLeft []int
}

// replay goes through the bookings of each resource since its definition last
// changed, and holds the numbers of each against the rule: they must be those
// before it with this one pick booked, nothing else.
//
// Which other candidates there were isn't in the log; whether the pick was the
// right one is what [selector.LegalPick] says where that is known.
func replay(ctx context.Context, tx pgx.Tx, d *db.DB) ([]Violation, error) {
	rows, err := tx.Query(ctx, d.SQL(`
		SELECT r.resource_id, r.kind || ' ' || r.name FROM siding.resources r
		WHERE EXISTS (SELECT FROM siding.bookings b WHERE b.resource_id = r.resource_id) ORDER BY r.resource_id`))
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	type resource struct {
		ID   int32
		Name string
	}
	resources, err := pgx.CollectRows(rows, pgx.RowToStructByPos[resource])
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	var found []Violation
	for _, r := range resources {
		queues, err := listed(ctx, tx, d, r.ID)
		if err != nil {
			return nil, err
		}
		log, err := bookings(ctx, tx, d, r.ID)
		if err != nil {
			return nil, err
		}
		if v := replayOne(queues, log); v != nil {
			v.Subject = r.Name
			found = append(found, *v)
		}
	}
	return found, nil
}

// listed reads the queues of a resource in precedence order.
func listed(ctx context.Context, tx pgx.Tx, d *db.DB, resource int32) ([]selector.ModelQueue, error) {
	rows, err := tx.Query(ctx, d.SQL(`
		SELECT q.queue_id, q.capacity, q.penalty FROM siding.resource_queues l JOIN siding.queues q ON q.queue_id = l.queue_id
		WHERE l.resource_id = $1 ORDER BY l.rank`), resource)
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	queues, err := pgx.CollectRows(rows, pgx.RowToStructByPos[selector.ModelQueue])
	if err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	return queues, nil
}

func bookings(ctx context.Context, tx pgx.Tx, d *db.DB, resource int32) ([]booking, error) {
	rows, err := tx.Query(ctx, d.SQL(`
		SELECT booking_no, coalesce(order_id, 0), queue_id, waived, queue_ids, served, penalty_left FROM siding.bookings
		WHERE resource_id = $1
		  AND booking_no >= coalesce((SELECT max(booking_no) FROM siding.bookings WHERE resource_id = $1 AND order_id IS NULL), 0)
		ORDER BY booking_no`), resource)
	if err != nil {
		return nil, fmt.Errorf("read bookings: %w", err)
	}
	log, err := pgx.CollectRows(rows, pgx.RowToStructByPos[booking])
	if err != nil {
		return nil, fmt.Errorf("read bookings: %w", err)
	}
	return log, nil
}

// replayOne returns the first booking that doesn't follow from those before.
func replayOne(queues []selector.ModelQueue, log []booking) *Violation {
	model := &selector.ModelResource{Queues: queues, Numbers: map[int]selector.Numbers{}}
	for _, b := range log {
		if len(b.Served) != len(b.Queues) || len(b.PenaltyLeft) != len(b.Queues) {
			return &Violation{Rule: "booking_numbers", Detail: fmt.Sprintf("booking %d is not whole", b.No)}
		}
		if !slices.EqualFunc(b.Queues, queues, func(id int, q selector.ModelQueue) bool { return id == q.ID }) {
			return &Violation{Rule: "booking_numbers", Detail: fmt.Sprintf("booking %d is of queues %v", b.No, b.Queues)}
		}
		if b.Order == 0 {
			for i, id := range b.Queues {
				model.Numbers[id] = selector.Numbers{Served: b.Served[i], PenaltyLeft: b.PenaltyLeft[i]}
			}
			continue
		}
		if waived := model.Numbers[b.Queue].PenaltyLeft > 0; waived != b.Waived {
			return &Violation{Rule: "booking_waived", Detail: fmt.Sprintf("booking %d of order %d says %t", b.No, b.Order, b.Waived)}
		}
		model.Book(selector.Candidate{ID: b.Order, Queue: b.Queue})
		for i, id := range b.Queues {
			is := selector.Numbers{Served: b.Served[i], PenaltyLeft: b.PenaltyLeft[i]}
			if want := model.Numbers[id]; is != want {
				return &Violation{Rule: "booking_numbers", Detail: fmt.Sprintf(
					"booking %d of order %d left queue %d with %+v, the rule gives %+v", b.No, b.Order, id, is, want)}
			}
		}
	}
	return nil
}
