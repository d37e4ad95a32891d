// Package report holds the views for people and programs that read the database
// directly: schema siding_report, documented by comments in the database.
package report

import "embed"

// Routines are this room's views; internal/schema installs them.
//
//go:embed sql/*.sql
var Routines embed.FS
