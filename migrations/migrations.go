// Package migrations holds the schema of the database as goose migrations,
// written with the literal schema names siding and siding_report.
package migrations

import "embed"

// FS has one file per migration. They are applied by db.Migrate, which puts in
// the real schema names.
//
//go:embed *.sql
var FS embed.FS
