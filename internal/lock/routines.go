// Package lock grants locks: which order gets the next units, what is given
// back and when, and the pick that waits until it fits (docs/concepts.md,
// Locks). The rules stand in its routines (sql/); other rooms' routines call
// them inside their own transactions.
package lock

import "embed"

// Routines are this room's SQL functions; internal/schema installs them.
//
//go:embed sql/*.sql
var Routines embed.FS
