// Package db is the only room that knows how Siding talks to Postgres: the
// name of its schema, the connection pool and its transactions, refusals
// raised by SQL, migrations and routines, and the listener for notifications.
//
// Queries are written with the literal schema names siding and siding_report,
// so that they can be read and run as SQL; [Schema.SQL] puts in the real names.
package db
