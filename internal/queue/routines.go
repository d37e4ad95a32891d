package queue

import "embed"

// Routines are this room's SQL functions; internal/schema installs them.
//
//go:embed sql/*.sql
var Routines embed.FS
