package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs after which the same transaction may succeed when it is run again.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
)

const (
	firstRetryDelay = 5 * time.Millisecond
	maxRetryDelay   = 250 * time.Millisecond
	rollbackTimeout = 5 * time.Second
)

// ErrCommitUnknown is wrapped by the error of DB.Tx when the connection broke
// during COMMIT: the transaction may have been committed or not. Such a
// transaction is never run again by itself.
var ErrCommitUnknown = errors.New("commit outcome unknown")

// Tx runs fn in one READ COMMITTED transaction with deadlines
// (Config.StatementTimeout, Config.TransactionTimeout), and commits it when fn
// returns nil. After a serialization failure, a deadlock or a lock timeout all
// of it is run again, up to Config.MaxAttempts times with growing, jittered
// delays; so fn must do nothing that a rollback doesn't undo, and must set its
// results anew each time.
//
// A rule violation that SQL raised is returned as a *Refusal. After
// ErrCommitUnknown the transaction may or may not have been committed; after
// every other error it has not.
func (d *DB) Tx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := d.once(ctx, fn)
		if err == nil {
			return nil
		}
		if !repeatable(err) {
			return Wrap(err)
		}
		if attempt >= d.config.MaxAttempts {
			return fmt.Errorf("transaction failed %d times: %w", attempt, err)
		}
		timer := time.NewTimer(retryDelay(attempt))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; last attempt: %w", ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// once runs one attempt.
func (d *DB) once(ctx context.Context, fn func(tx pgx.Tx) error) error {
	attempt, cancel := context.WithTimeout(ctx, d.config.TransactionTimeout)
	defer cancel()
	tx, err := d.Pool.BeginTx(attempt, pgx.TxOptions{BeginQuery: d.begin()})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// Also when fn panics; a no-op after a commit. Not with the attempt's
	// context: when that is over, the rollback must still be sent.
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(end) // a failed rollback closes the connection, which rolls back
	}()
	// fn has its own context, so the limit is kept by taking its connection
	// away.
	stop := context.AfterFunc(attempt, func() { _ = tx.Conn().PgConn().Conn().Close() })
	defer stop() // when fn panics
	err = fn(tx)
	if !stop() {
		return fmt.Errorf("transaction stopped: %w", errors.Join(attempt.Err(), err))
	}
	if err != nil {
		return err
	}
	return commitError(tx.Commit(attempt))
}

// begin opens the transaction and sets its deadlines in one round trip.
func (d *DB) begin() string {
	return fmt.Sprintf("begin isolation level read committed read write;"+
		"set local statement_timeout = %d; set local idle_in_transaction_session_timeout = %d",
		d.config.StatementTimeout.Milliseconds(), d.config.TransactionTimeout.Milliseconds())
}

// commitError tells a commit that certainly failed from one whose outcome
// nobody knows.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	refused := errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
	if refused || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) {
		return fmt.Errorf("commit: %w", err)
	}
	return fmt.Errorf("commit: %w: %w", ErrCommitUnknown, err)
}

// repeatable reports whether running the transaction again may help and can do
// no harm.
func repeatable(err error) bool {
	if errors.Is(err, ErrCommitUnknown) {
		return false
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case serializationFailure, deadlockDetected, lockNotAvailable:
		return true
	}
	return false
}

// retryDelay doubles with each attempt and lies between half and the whole of
// that, so that the two sides of a deadlock don't meet again.
func retryDelay(attempt int) time.Duration {
	d := maxRetryDelay
	if shift := attempt - 1; shift < 6 {
		d = min(d, firstRetryDelay<<shift)
	}
	return d/2 + rand.N(d/2+1)
}
