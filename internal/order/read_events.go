package order

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Event is one entry of the log of events.
type Event struct {
	Number  int64           `json:"number"`
	At      time.Time       `json:"at"`
	Order   int64           `json:"order,omitempty" doc:"The order; absent for events of definitions, lines and sessions"`
	Kind    string          `json:"kind"`
	Subject string          `json:"subject,omitempty"`
	Person  string          `json:"person,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// Events is a part of the log of events.
type Events struct {
	Events []Event `json:"events"`
	// Next continues the log, now or later. It is there also when the end is
	// reached, so that a reader can follow.
	Next string `json:"next" doc:"Cursor that continues behind the last event, now or later"`
}

// Tail is the cursor that starts behind the newest event.
const Tail = "tail"

const (
	// gapAge is how long a missing number may still turn into an event: longer
	// than any transaction of a controller lasts.
	gapAge = 2 * time.Minute
	// maxGaps bounds the numbers that a cursor remembers.
	maxGaps = 256
)

// eventCursor is a place in the log. An event gets its number before its
// transaction commits, so a smaller number can appear after a larger one was
// read: the cursor remembers the numbers that were missing of late, and they
// are delivered when they come.
type eventCursor struct {
	Last int64 `json:"n"`
	Gaps []gap `json:"g,omitempty"`
}

// gap is a missing number and the time of the event that showed it missing.
type gap struct {
	Number int64     `json:"n"`
	Since  time.Time `json:"t"`
}

// Events reads the log of events behind a cursor: empty for its beginning, Tail
// for its end. At most limit (1 to MaxPage), in the order of their numbers, but
// for those that became visible late. No event is lost, none comes twice.
// Refusals: invalid_cursor, invalid_filter.
func (o *Orders) Events(ctx context.Context, cursor string, limit int) (Events, error) {
	if limit < 1 || limit > MaxPage {
		return Events{}, db.Refuse("invalid_filter", 422, "limit %d is not between 1 and %d", limit, MaxPage)
	}
	at, err := o.openEvents(ctx, cursor)
	if err != nil {
		return Events{}, fmt.Errorf("read events: %w", err)
	}
	missing := make([]int64, len(at.Gaps))
	for i, g := range at.Gaps {
		missing[i] = g.Number
	}
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
		(SELECT event_no, at, coalesce(order_id, 0), kind, coalesce(subject, ''), coalesce(person, ''), coalesce(reason, ''),
		        nullif(detail, '{}'), siding.clock()
		 FROM siding.events WHERE event_no = ANY ($1))
		UNION ALL
		(SELECT event_no, at, coalesce(order_id, 0), kind, coalesce(subject, ''), coalesce(person, ''), coalesce(reason, ''),
		        nullif(detail, '{}'), siding.clock()
		 FROM siding.events WHERE event_no > $2 ORDER BY event_no LIMIT $3)
		ORDER BY event_no LIMIT $3`), missing, at.Last, limit)
	if err != nil {
		return Events{}, fmt.Errorf("read events: %w", err)
	}
	var now time.Time
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var e Event
		var detail []byte
		err := row.Scan(&e.Number, &e.At, &e.Order, &e.Kind, &e.Subject, &e.Person, &e.Reason, &detail, &now)
		e.Detail = detail
		return e, err
	})
	if err != nil {
		return Events{}, fmt.Errorf("read events: %w", err)
	}
	next, err := json.Marshal(at.behind(events, now))
	if err != nil {
		return Events{}, fmt.Errorf("read events: %w", err)
	}
	return Events{Events: events, Next: sealCursor(string(next))}, nil
}

// behind is the cursor behind events that were read at a time.
func (c eventCursor) behind(events []Event, now time.Time) eventCursor {
	read := make(map[int64]bool, len(events))
	next := eventCursor{Last: c.Last}
	for _, e := range events {
		read[e.Number] = true
	}
	for _, g := range c.Gaps {
		// Without events nothing tells the time, and nothing grows.
		if !read[g.Number] && (len(events) == 0 || now.Sub(g.Since) < gapAge) {
			next.Gaps = append(next.Gaps, g)
		}
	}
	for _, e := range events {
		if e.Number <= next.Last {
			continue
		}
		if now.Sub(e.At) < gapAge {
			for n := max(next.Last+1, e.Number-maxGaps); n < e.Number; n++ {
				next.Gaps = append(next.Gaps, gap{Number: n, Since: e.At})
			}
		}
		next.Last = e.Number
	}
	if over := len(next.Gaps) - maxGaps; over > 0 {
		next.Gaps = next.Gaps[over:]
	}
	return next
}

func (o *Orders) openEvents(ctx context.Context, cursor string) (eventCursor, error) {
	var at eventCursor
	switch cursor {
	case "":
		return at, nil
	case Tail:
		err := o.db.Pool.QueryRow(ctx, o.db.SQL(`SELECT coalesce(max(event_no), 0) FROM siding.events`)).Scan(&at.Last)
		return at, err
	}
	text, err := openCursor(cursor)
	if err != nil {
		return at, err
	}
	if err := json.Unmarshal([]byte(text), &at); err != nil || len(at.Gaps) > maxGaps {
		return at, invalidCursor()
	}
	return at, nil
}
