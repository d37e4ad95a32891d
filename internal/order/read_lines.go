package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Line is how the line of an agent or cluster treats blocked orders.
type Line struct {
	Agent string `json:"agent"`
	Mode  string `json:"mode" enum:"pass,strict"`
	// Reason is why it is strict, or that a person set the mode.
	Reason string     `json:"reason,omitempty" doc:"fact_unreadable, too_many_blocked or set_by_person"`
	Since  *time.Time `json:"since,omitempty"`
	// PersonMode is what a person set; "auto" if the facts decide.
	PersonMode   string `json:"person_mode" enum:"auto,pass,strict"`
	Person       string `json:"person,omitempty"`
	PersonReason string `json:"person_reason,omitempty"`
	MaxBlocked   *int   `json:"max_blocked,omitempty"`
}

// Line reads the line of an agent. It refuses with unknown_agent.
func (o *Orders) Line(ctx context.Context, agent string) (Line, error) {
	l := Line{Agent: agent}
	err := o.db.Pool.QueryRow(ctx, o.db.SQL(`
		SELECT l.mode, coalesce(l.reason, ''), l.since, coalesce(l.person_mode, 'auto'), coalesce(l.person, ''),
		       coalesce(l.person_reason, ''), r.max_blocked
		FROM siding.lines l JOIN siding.resources r ON r.resource_id = l.line_id
		WHERE r.kind = 'agent' AND r.name = $1 AND r.removed_at IS NULL`), agent).
		Scan(&l.Mode, &l.Reason, &l.Since, &l.PersonMode, &l.Person, &l.PersonReason, &l.MaxBlocked)
	if errors.Is(err, pgx.ErrNoRows) {
		return Line{}, db.Refuse("unknown_agent", 404, "there is no agent %s", agent)
	}
	if err != nil {
		return Line{}, fmt.Errorf("read line of %s: %w", agent, err)
	}
	return l, nil
}

// PauseEntry is a pause in force.
type PauseEntry struct {
	Kind   string     `json:"kind" enum:"queue,agent,lock,workflow"`
	Name   string     `json:"name"`
	Until  *time.Time `json:"until,omitempty" doc:"When it ends by itself; absent: until it is ended"`
	Reason string     `json:"reason"`
	Person string     `json:"person"`
	Since  time.Time  `json:"since"`
}

// Pauses lists the pauses in force, by kind and name.
func (o *Orders) Pauses(ctx context.Context) ([]PauseEntry, error) {
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
		SELECT kind, siding.pause_subject(kind, subject_id), until, reason, person, since FROM siding.pauses ORDER BY 1, 2`))
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	pauses, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PauseEntry])
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	return pauses, nil
}

// Instant reads a time as orders state their due time: an instant of RFC 3339,
// or a duration from the database's now. It refuses with invalid_pause.
func (o *Orders) Instant(ctx context.Context, text string) (time.Time, error) {
	var at *time.Time
	err := o.db.Pool.QueryRow(ctx, o.db.SQL(`SELECT siding.due_time($1, siding.clock())`), text).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time: %w", err)
	}
	if at == nil {
		r := db.Refuse("invalid_pause", 422, "%q is neither an instant (RFC 3339) nor a duration from now", text)
		r.Hint = `For example "2030-01-31T08:00:00Z" or "15m".`
		return time.Time{}, r
	}
	return *at, nil
}
