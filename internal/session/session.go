// Package session reads sessions of agents for people: which processes are
// there, when they were last heard of, what they run.
package session

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Session is one run of an agent process.
type Session struct {
	ID          int64     `json:"session"`
	Agent       string    `json:"agent"`
	Processes   int       `json:"processes" doc:"How many orders it runs at once"`
	Running     int       `json:"running" doc:"How many it runs now"`
	Host        string    `json:"host,omitempty"`
	PID         int       `json:"pid,omitempty"`
	OpenedAt    time.Time `json:"opened_at"`
	HeartbeatAt time.Time `json:"heartbeat_at" doc:"Last sign of life"`
	// EndedAt and EndReason (closed, replaced, lost) are those of an ended one.
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	EndReason string     `json:"end_reason,omitempty" doc:"closed, replaced or lost"`
}

// Filter says which sessions List gives.
type Filter struct {
	Agent string
	// Ended gives also those that ended.
	Ended bool
	// Cursor is the Next of the page before.
	Cursor string
	// Limit is the length of a page, 1 to 1000.
	Limit int
}

// Page is a part of the list, newest first.
type Page struct {
	Sessions []Session `json:"sessions"`
	Next     string    `json:"next,omitempty" doc:"Cursor of the next page; absent at the end"`
}

// List lists sessions. Refusals: invalid_cursor, invalid_filter.
func List(ctx context.Context, d *db.DB, f Filter) (Page, error) {
	if f.Limit < 1 || f.Limit > 1000 {
		return Page{}, db.Refuse("invalid_filter", 422, "limit %d is not between 1 and 1000", f.Limit)
	}
	before := int64(1<<63 - 1)
	if f.Cursor != "" {
		var err error
		if before, err = strconv.ParseInt(f.Cursor, 10, 64); err != nil {
			return Page{}, db.Refuse("invalid_cursor", 422, "the cursor is not one that this list gave")
		}
	}
	// A condition of its own, so that the index of the open ones can be used.
	open := ` AND s.ended_at IS NULL`
	if f.Ended {
		open = ``
	}
	rows, err := d.Pool.Query(ctx, d.SQL(`
		SELECT s.session_id, r.name, s.processes,
		       (SELECT count(*) FROM siding.orders o WHERE o.agent_id = s.agent_id AND o.state = 'running' AND o.session_id = s.session_id),
		       s.host, s.pid, s.opened_at, s.heartbeat_at, s.ended_at, coalesce(s.end_reason, '')
		FROM siding.sessions s JOIN siding.resources r ON r.resource_id = s.agent_id
		WHERE s.session_id < $1 AND ($2 = '' OR r.name = $2)`+open+`
		ORDER BY s.session_id DESC LIMIT $3`), before, f.Agent, f.Limit)
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Session])
	if err != nil {
		return Page{}, fmt.Errorf("list sessions: %w", err)
	}
	page := Page{Sessions: sessions}
	if len(sessions) == f.Limit {
		page.Next = strconv.FormatInt(sessions[len(sessions)-1].ID, 10)
	}
	return page, nil
}
