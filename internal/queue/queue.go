// Package queue shows the lists of every queue and of the orders without one,
// who is in a queue and who is its overflow, and how long the lists are.
package queue

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// None names the orders without a queue where a queue's name is expected.
const None = "-"

// MaxPage bounds a page of a list.
const MaxPage = 1000

const defaultPage = 100

// The lists. Every live order stands in exactly one list of its queue.
const (
	Waiting   = "waiting"   // in line, by position
	Pending   = "pending"   // running, in the order in which they were claimed
	Scheduled = "scheduled" // due or tried again later, by that time
	Dead      = "dead"      // attempts used up, by position
	Attention = "attention" // a person must decide, by position
	Suspended = "suspended" // by a person, by position
)

// Lists lists the lists.
func Lists() []string { return []string{Waiting, Pending, Scheduled, Dead, Attention, Suspended} }

// Entry is one order in a list.
type Entry struct {
	Order    int64  `json:"order"`
	Ref      string `json:"ref,omitempty"`
	Workflow string `json:"workflow"`
	// Step and Job say where the order stands.
	Step string `json:"step"`
	Job  string `json:"job"`
	// LineKind and Line name what it waits for or runs on: an agent or a lock.
	LineKind string `json:"line_kind"`
	Line     string `json:"line"`
	// State is the one word for its state.
	State    string     `json:"state"`
	Position int64      `json:"position"`
	Key      string     `json:"key,omitempty"`
	Attempt  int        `json:"attempt"`
	AddedAt  time.Time  `json:"added_at"`
	DueAt    *time.Time `json:"due_at,omitempty"`
	ReadyAt  *time.Time `json:"ready_at,omitempty"`
	// StartedAt is its first start, LeasedAt that of the running attempt.
	StartedAt *time.Time `json:"started_at,omitempty"`
	LeasedAt  *time.Time `json:"leased_at,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	// Reason is the code of why it is in attention, dead or suspended.
	Reason string `json:"reason,omitempty"`
}

// Page is a part of a list.
type Page struct {
	Queue  string  `json:"queue"`
	List   string  `json:"list"`
	Orders []Entry `json:"orders"`
	// Next continues the list; empty at its end.
	Next string `json:"next,omitempty"`
}

// Queues is the room's entrance.
type Queues struct {
	db     *db.DB
	counts counting
}

// New returns the queues of a schema.
func New(d *db.DB) *Queues { return &Queues{db: d} }

// List returns a page of a list of a queue, or (None) of the orders without
// one. It begins where cursor, the Next of the page before, says; limit is its
// length, 1 to MaxPage, 0 for the default. Orders that move between two calls
// may be seen twice or not at all.
//
// Refusals: unknown_queue, unknown_list, invalid_cursor, invalid_limit.
func (q *Queues) List(ctx context.Context, queue, list, cursor string, limit int) (Page, error) {
	page := Page{Queue: queue, List: list, Orders: []Entry{}}
	limit, err := pageLength(limit)
	if err != nil {
		return Page{}, err
	}
	if !slices.Contains(Lists(), list) {
		r := db.Refuse("unknown_list", 404, "there is no list %s", list)
		r.Hint = "One of: " + strings.Join(Lists(), ", ") + "."
		return Page{}, r
	}
	at, err := parseCursor(list, cursor)
	if err != nil {
		return Page{}, err
	}
	// One more than asked for tells whether there is a next page.
	rows, err := q.db.Pool.Query(ctx, q.db.SQL(`
		SELECT order_id, sort_key, sort_at, coalesce(ref, ''), workflow, step_path, job, line_kind, line, state, position,
		       coalesce(key, ''), attempt, added_at, due_at, ready_at, started_at, leased_at, coalesce(agent, ''), coalesce(reason, '')
		FROM siding.list_page(siding.queue_named($1), $2, $3, $4, $5, $6)`),
		queue, list, at.key, at.time, at.id, limit+1)
	if err != nil {
		return Page{}, fmt.Errorf("list %s of queue %s: %w", list, queue, db.Wrap(err))
	}
	var e Entry
	last := place{}
	_, err = pgx.ForEachRow(rows, []any{
		&e.Order, &last.key, &last.time, &e.Ref, &e.Workflow, &e.Step, &e.Job, &e.LineKind, &e.Line, &e.State, &e.Position,
		&e.Key, &e.Attempt, &e.AddedAt, &e.DueAt, &e.ReadyAt, &e.StartedAt, &e.LeasedAt, &e.Agent, &e.Reason,
	}, func() error {
		if len(page.Orders) == limit {
			page.Next = at.cursor(list)
			return nil
		}
		page.Orders = append(page.Orders, e)
		id := e.Order
		at = place{last.key, last.time, &id}
		return nil
	})
	if err != nil {
		return Page{}, fmt.Errorf("list %s of queue %s: %w", list, queue, db.Wrap(err))
	}
	return page, nil
}

func pageLength(limit int) (int, error) {
	if limit == 0 {
		return defaultPage, nil
	}
	if limit < 1 || limit > MaxPage {
		return 0, db.Refuse("invalid_limit", 422, "limit %d is not between 1 and %d", limit, MaxPage)
	}
	return limit, nil
}

// place is where a page ended: sort key, or time of a scheduled order, and id.
// All nil: the beginning.
type place struct {
	key  *int64
	time *time.Time
	id   *int64
}

func (p place) cursor(list string) string {
	var key, at int64
	if p.key != nil {
		key = *p.key
	}
	if p.time != nil {
		at = p.time.UnixMicro()
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s/%d/%d/%d", list, key, at, *p.id))
}

func parseCursor(list, cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(text), "/")
	if err == nil && len(parts) == 4 && parts[0] == list {
		var numbers [3]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(parts[i+1], 10, 64); err != nil {
				break
			}
		}
		if err == nil {
			at := time.UnixMicro(numbers[1])
			return place{&numbers[0], &at, &numbers[2]}, nil
		}
	}
	return place{}, db.Refuse("invalid_cursor", 422, "%q is no cursor of the list %s", cursor, list)
}

// Place is a candidate at a resource that lists its queue.
type Place struct {
	// Kind is agent or lock.
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	Order    int64  `json:"order"`
	Position int64  `json:"position"`
}

// Places says who is in a queue and who is behind its capacity. An order stands
// at one resource at a time.
type Places struct {
	InQueue  []Place `json:"in_queue"`
	Overflow []Place `json:"overflow"`
}

// InQueue returns the candidates of a queue at the resources that list it,
// within and beyond its capacity there, by position. Of each resource there are
// at most the capacity and limit more; limit as in List. None has no places.
// Refusals: unknown_queue, invalid_limit.
func (q *Queues) InQueue(ctx context.Context, queue string, limit int) (Places, error) {
	places := Places{InQueue: []Place{}, Overflow: []Place{}}
	limit, err := pageLength(limit)
	if err != nil {
		return Places{}, err
	}
	rows, err := q.db.Pool.Query(ctx, q.db.SQL(`
		SELECT kind, resource, order_id, position, overflow FROM siding.in_queue(siding.queue_named($1), $2)`), queue, limit)
	if err != nil {
		return Places{}, fmt.Errorf("places in queue %s: %w", queue, db.Wrap(err))
	}
	var p Place
	var overflow bool
	_, err = pgx.ForEachRow(rows, []any{&p.Kind, &p.Resource, &p.Order, &p.Position, &overflow}, func() error {
		if overflow {
			places.Overflow = append(places.Overflow, p)
		} else {
			places.InQueue = append(places.InQueue, p)
		}
		return nil
	})
	if err != nil {
		return Places{}, fmt.Errorf("places in queue %s: %w", queue, db.Wrap(err))
	}
	return places, nil
}
