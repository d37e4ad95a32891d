// Package definition reads, checks and writes the documents people define
// Siding's world with: queues, locks, agents and workflows. It is pure: it
// touches no database and no clock.
//
// A definition passes through four stages, each of which keeps going after a
// problem, so that a person sees all of them at once:
//
//	text -> tree (node*.go)    YAML or JSON with the position of everything
//	     -> types (decode*.go) unknown fields, duplicates, wrong types
//	     -> defaults           the normal form, in which contents are compared
//	     -> rules (validate)   what docs/concepts.md calls a valid definition
//
// What a definition refers to is checked by CheckAgainst, which is told what
// exists. A new kind of step is one more file step_*.go that implements
// instruction, and a line in stepKinds.
package definition
