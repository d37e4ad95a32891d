// Package schema knows which migrations and which rooms' routines make up a
// schema of Siding.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/siding-dev/siding/internal/attachment"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/dispatch"
	"github.com/siding-dev/siding/internal/forecast"
	"github.com/siding-dev/siding/internal/keeper"
	"github.com/siding-dev/siding/internal/lock"
	"github.com/siding-dev/siding/internal/order"
	"github.com/siding-dev/siding/internal/queue"
	"github.com/siding-dev/siding/internal/report"
	"github.com/siding-dev/siding/internal/selector"
	"github.com/siding-dev/siding/internal/why"
)

//go:embed sql/*.sql
var own embed.FS

// Routines lists the rooms' routines in the order in which they are installed.
func Routines() ([]db.Routines, error) {
	rooms := []struct {
		name  string
		files embed.FS
	}{
		{"schema", own},
		{"order", order.Routines},
		{"selector", selector.Routines},
		{"lock", lock.Routines},
		{"dispatch", dispatch.Routines},
		{"attachment", attachment.Routines},
		{"keeper", keeper.Routines},
		{"why", why.Routines},
		{"queue", queue.Routines},
		{"report", report.Routines},
		{"forecast", forecast.Routines},
	}
	routines := make([]db.Routines, 0, len(rooms))
	for _, room := range rooms {
		files, err := fs.Sub(room.files, "sql")
		if err != nil {
			return nil, fmt.Errorf("routines of %s: %w", room.name, err)
		}
		routines = append(routines, db.Routines{Room: room.name, FS: files})
	}
	return routines, nil
}

// Migrate brings the schema of the database at url, a direct connection, to
// this binary's version, and installs all routines.
func Migrate(ctx context.Context, url string, s db.Schema, clock db.ClockKind) error {
	rooms, err := Routines()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, db.MigrateConfig{URL: url, Schema: s, Routines: rooms, Clock: clock})
}
