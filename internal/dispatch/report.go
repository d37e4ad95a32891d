package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/siding-dev/siding/internal/agent/protocol"
)

// Report tells the ends of attempts. Results are in the order of reports; a
// refused one (stale_lease, invalid_report) changed nothing; an attempt whose
// outputs can't be stored has failed. An error means
// that none is known to be written: the agent repeats the call, and what was
// accepted before is accepted again.
func (x *Dispatch) Report(ctx context.Context, session protocol.SessionID, reports []protocol.Report) ([]protocol.ReportResult, error) {
	if len(reports) == 0 {
		return nil, nil
	}
	call := &reportCall{session: session, reports: reports, done: make(chan error, 1)}
	select {
	case x.reports <- call:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case err := <-call.done:
		return call.results, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type reportCall struct {
	session protocol.SessionID
	reports []protocol.Report
	results []protocol.ReportResult
	done    chan error
}

// writeReports writes what is there, many calls in one transaction. While one
// is under way the next calls gather.
func (x *Dispatch) writeReports(ctx context.Context) {
	for {
		var calls []*reportCall
		select {
		case <-ctx.Done():
			return
		case call := <-x.reports:
			calls = append(calls, call)
		}
		total := len(calls[0].reports)
	gather:
		for total < x.config.MaxReports {
			select {
			case call := <-x.reports:
				calls = append(calls, call)
				total += len(call.reports)
			default:
				break gather
			}
		}
		x.writeCalls(ctx, calls)
	}
}

// oneReport is a report with where its result belongs.
type oneReport struct {
	session protocol.SessionID
	protocol.Report
	result *protocol.ReportResult
}

func (x *Dispatch) writeCalls(ctx context.Context, calls []*reportCall) {
	var all []oneReport
	for _, call := range calls {
		call.results = make([]protocol.ReportResult, len(call.reports))
		for i, r := range call.reports {
			call.results[i].LeaseRef = r.LeaseRef
			all = append(all, oneReport{session: call.session, Report: r, result: &call.results[i]})
		}
	}
	// Orders are locked in the order of their ids.
	slices.SortStableFunc(all, func(a, b oneReport) int { return cmp.Compare(a.Order, b.Order) })
	lines, err := x.write(ctx, all)
	if err != nil && ctx.Err() == nil {
		x.config.Logger.Error("reports failed", "reports", len(all), "error", err)
	}
	for _, call := range calls {
		call.done <- err
	}
	x.Wake(lines...)
}

// write writes reports in one transaction; when the database refuses that as a
// whole, in two halves, so that one bad row can't stop the rest.
func (x *Dispatch) write(ctx context.Context, all []oneReport) ([]int32, error) {
	lines, err := x.writeOnce(ctx, all)
	if err == nil || ctx.Err() != nil || !ofRow(err) {
		return lines, err
	}
	if len(all) == 1 {
		return x.writeUnstorable(ctx, all[0], err)
	}
	first, err1 := x.write(ctx, all[:len(all)/2])
	second, err2 := x.write(ctx, all[len(all)/2:])
	return append(first, second...), cmp.Or(err1, err2)
}

// ofRow tells an error that a single report can have caused from those of the
// server or the connection, which the other half would meet as well.
func ofRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code[:2] {
	case "08", "40", "53", "57", "58", "XX": // connection, repeat, resources, shutdown, system
		return false
	}
	return true
}

// writeUnstorable writes a report whose values the database can't hold, such as
// outputs with the character U+0000: the attempt has failed for that. Were it
// only refused, the order would run for ever, as its agent is done with it.
func (x *Dispatch) writeUnstorable(ctx context.Context, r oneReport, err error) ([]int32, error) {
	var pg *pgconn.PgError
	const dataException, programLimit = "22", "54"
	if !errors.As(err, &pg) || pg.Code[:2] != dataException && pg.Code[:2] != programLimit {
		return nil, err
	}
	r.Outcome, r.Outputs, r.Message = protocol.Failed, nil, "the outputs can't be stored: "+pg.Message
	return x.writeOnce(ctx, []oneReport{r})
}

// storable is text that Postgres can hold.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

func (x *Dispatch) writeOnce(ctx context.Context, all []oneReport) ([]int32, error) {
	n := len(all)
	sessions, orders, leases := make([]int64, n), make([]int64, n), make([]int64, n)
	outcomes, exits, messages, outputs := make([]string, n), make([]*int, n), make([]*string, n), make([]*string, n)
	for i, r := range all {
		sessions[i], orders[i], leases[i] = int64(r.session), r.Order, r.Lease
		outcomes[i], exits[i] = string(r.Outcome), r.ExitCode
		if r.Message != "" {
			message := storable(r.Message)
			messages[i] = &message
		}
		if len(r.Outputs) > 0 {
			text := string(r.Outputs)
			outputs[i] = &text
		}
	}
	var (
		accepted []bool
		codes    []*string
		lines    []int32
	)
	began := time.Now()
	err := x.db.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, x.db.SQL(`SELECT accepted, codes, lines FROM siding.report($1, $2, $3, $4, $5, $6, $7::text[]::jsonb[])`),
			sessions, orders, leases, outcomes, exits, messages, outputs).Scan(&accepted, &codes, &lines)
	})
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	x.config.Observer.Reported(n, time.Since(began))
	for i, r := range all {
		r.result.Accepted = accepted[i]
		if codes[i] != nil {
			r.result.Code = *codes[i]
		}
	}
	return lines, nil
}
