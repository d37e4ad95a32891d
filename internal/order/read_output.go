package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// StepOutput is what one attempt of a job handed back.
type StepOutput struct {
	Lease   int64           `json:"lease"`
	Step    string          `json:"step_path"`
	Job     string          `json:"job"`
	EndedAt time.Time       `json:"ended_at"`
	Outputs json.RawMessage `json:"outputs" doc:"A JSON object"`
}

// Outputs returns the values that the order's jobs handed back, the oldest
// first. It refuses with order_not_found.
func (o *Orders) Outputs(ctx context.Context, id int64) ([]StepOutput, error) {
	if err := o.exists(ctx, id); err != nil {
		return nil, fmt.Errorf("outputs of order %d: %w", id, err)
	}
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
		SELECT x.lease_no, s.step_path, s.job, x.ended_at, x.outputs
		FROM siding.step_outputs x JOIN siding.steps s ON s.step_id = x.step_id
		WHERE x.order_id = $1 ORDER BY x.lease_no`), id)
	if err != nil {
		return nil, fmt.Errorf("outputs of order %d: %w", id, err)
	}
	outputs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (StepOutput, error) {
		var x StepOutput
		var text []byte
		err := row.Scan(&x.Lease, &x.Step, &x.Job, &x.EndedAt, &text)
		x.Outputs = text
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("outputs of order %d: %w", id, err)
	}
	return outputs, nil
}

func (o *Orders) exists(ctx context.Context, id int64) error {
	var found bool
	err := o.db.Pool.QueryRow(ctx, o.db.SQL(`
		SELECT EXISTS (SELECT FROM siding.orders WHERE id = $1) OR EXISTS (SELECT FROM siding.outcomes WHERE order_id = $1)`), id).Scan(&found)
	if err == nil && !found {
		return notFound(id)
	}
	return err
}

// TextRequest says which part of what a job wrote is wanted.
type TextRequest struct {
	// Stream is stdout or stderr.
	Stream string
	// Lease names the attempt; 0 means the last one that wrote anything.
	Lease int64
	// Offset is the first byte wanted. Tail, if above 0, wins: that many bytes
	// from the end.
	Offset, Tail int64
	// Limit is the most bytes, 1 to MaxText.
	Limit int64
}

// MaxText is the most bytes of output that one call gives.
const MaxText = 1 << 20

// Text is a part of what an attempt wrote. It need not be UTF-8, and can start
// or end inside a character.
type Text struct {
	Lease  int64
	Offset int64 // of the first byte of Data
	Size   int64 // of all that is stored up to now
	Data   []byte
}

// Text reads what a job wrote. What is missing in between (an agent that could
// not deliver it) is left out: then Offset + len(Data) is where the gap starts,
// or Offset lies behind the one asked for. Refusals: order_not_found,
// invalid_filter.
func (o *Orders) Text(ctx context.Context, id int64, req TextRequest) (Text, error) {
	switch {
	case req.Stream != "stdout" && req.Stream != "stderr":
		return Text{}, db.Refuse("invalid_filter", 422, "%s is not a stream: stdout or stderr", strconv.Quote(req.Stream))
	case req.Offset < 0 || req.Tail < 0 || req.Limit < 1 || req.Limit > MaxText:
		return Text{}, db.Refuse("invalid_filter", 422, "offset and tail can't be negative, limit is between 1 and %d", MaxText)
	}
	if err := o.exists(ctx, id); err != nil {
		return Text{}, fmt.Errorf("output of order %d: %w", id, err)
	}
	text := Text{Lease: req.Lease, Offset: req.Offset}
	err := o.db.Pool.QueryRow(ctx, o.db.SQL(`
		SELECT lease_no, start_offset + length(data) FROM siding.output_text
		WHERE order_id = $1 AND stream = $2 AND ($3::bigint = 0 OR lease_no = $3)
		ORDER BY lease_no DESC, start_offset DESC LIMIT 1`), id, req.Stream, req.Lease).Scan(&text.Lease, &text.Size)
	if errors.Is(err, pgx.ErrNoRows) {
		return text, nil
	}
	if err != nil {
		return Text{}, fmt.Errorf("output of order %d: %w", id, err)
	}
	if req.Tail > 0 {
		text.Offset = max(0, text.Size-min(req.Tail, req.Limit))
	}
	if err := o.pieces(ctx, id, req, &text); err != nil {
		return Text{}, fmt.Errorf("output of order %d: %w", id, err)
	}
	return text, nil
}

// maxPiece is the most bytes that one row of output_text holds.
const maxPiece = 1 << 20

// pieces puts the stored pieces from text.Offset on together.
func (o *Orders) pieces(ctx context.Context, id int64, req TextRequest, text *Text) error {
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
		SELECT start_offset, data FROM siding.output_text
		WHERE order_id = $1 AND lease_no = $2 AND stream = $3
		  AND start_offset > $4::bigint - $6::bigint AND start_offset < $5 AND start_offset + length(data) > $4
		ORDER BY start_offset`), id, text.Lease, req.Stream, text.Offset, text.Offset+req.Limit, int64(maxPiece))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var start int64
		var data []byte
		if err := rows.Scan(&start, &data); err != nil {
			return err
		}
		end := text.Offset + int64(len(text.Data))
		switch {
		case start > end && len(text.Data) > 0:
			return nil
		case start > end:
			text.Offset = start
		case start+int64(len(data)) <= end:
			continue // stored twice
		default:
			data = data[end-start:]
		}
		text.Data = append(text.Data, data[:min(int64(len(data)), req.Limit-int64(len(text.Data)))]...)
	}
	return rows.Err()
}
