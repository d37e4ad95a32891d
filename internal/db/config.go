package db

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says how to connect. The zero value of each field but URL means its
// default.
type Config struct {
	// URL is the Postgres address, as a URL or as keyword=value pairs; several
	// hosts may be given, the one that takes writes is used.
	URL string

	// Schema is the name of the installation's schema. Default: siding.
	Schema string

	// MaxConns bounds the pool. Default: 10.
	MaxConns int32

	// PreparedStatements keeps prepared statements on each connection, which
	// saves planning and a round trip. False works behind PgBouncer in
	// transaction mode: no statement has a name, parameters are sent as text
	// with the types that their Go types suggest (so JSON must be passed as a
	// string, never as []byte).
	PreparedStatements bool

	// StatementTimeout is the server's limit for each statement inside a
	// transaction of DB.Tx. Default: 10 s.
	StatementTimeout time.Duration

	// TransactionTimeout is the limit for one attempt of DB.Tx as a whole. It
	// is kept by the client, so it also ends a wait for a server that no longer
	// answers; and by the server while a transaction is idle, so that a client
	// that is gone holds no locks. Default: 30 s.
	TransactionTimeout time.Duration

	// ConnectTimeout is the limit for opening one connection. Default: 5 s.
	ConnectTimeout time.Duration

	// MaxAttempts bounds how often DB.Tx runs a transaction that fails by a
	// deadlock, a serialization failure or a lock timeout. Default: 10.
	MaxAttempts int
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 10 * time.Second
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = 30 * time.Second
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 10
	}
	return c
}

// Validate reports everything that is wrong with the configuration, after
// defaults, in one error.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("database URL: missing"))
	} else if _, err := pgxpool.ParseConfig(c.URL); err != nil {
		errs = append(errs, fmt.Errorf("database URL: %w", err))
	}
	if _, err := NewSchema(c.Schema); err != nil {
		errs = append(errs, err)
	}
	if c.MaxConns < 1 {
		errs = append(errs, fmt.Errorf("max conns: %d, must be at least 1", c.MaxConns))
	}
	if c.MaxAttempts < 1 {
		errs = append(errs, fmt.Errorf("max attempts: %d, must be at least 1", c.MaxAttempts))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"statement timeout", c.StatementTimeout},
		{"transaction timeout", c.TransactionTimeout},
		{"connect timeout", c.ConnectTimeout},
	} {
		// Postgres counts these in milliseconds, and takes 0 for "no limit".
		if d.value < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s: %s, must be at least 1ms", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}
