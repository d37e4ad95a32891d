package pgworld

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// unseen tables say how the sweepers work, not what anybody sees or a rule
// decides upon.
var unseen = map[string]bool{"keeper_ticks": true, "list_counts": true, "claims": true}

// unseenColumns likewise: where a scan starts.
var unseenColumns = map[string]string{"lines": "floor"}

// Fingerprint digests all rows of all tables. What the product records of a
// refused request would be left out, if it recorded any.
func (w *World) Fingerprint(ctx context.Context) (string, error) {
	if w.digest == "" {
		tables, err := w.tables(ctx)
		if err != nil {
			return "", fmt.Errorf("fingerprint: %w", err)
		}
		w.digest = w.digestOf(append(tables, "stores", "scenario_clock"))
	}
	var digest string
	if err := w.db.Pool.QueryRow(ctx, w.digest).Scan(&digest); err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	return digest, nil
}

// digestOf is one statement over tables, each row as text.
func (w *World) digestOf(tables []string) string {
	parts := make([]string, 0, len(tables))
	for _, t := range tables {
		if unseen[t] {
			continue
		}
		row := "r::text"
		if column, ok := unseenColumns[t]; ok {
			row = "(to_jsonb(r) - '" + column + "')::text"
		}
		parts = append(parts, fmt.Sprintf("(SELECT concat('%s', md5(string_agg(%s, E'\\n' ORDER BY %s))) FROM %s r)",
			t, row, row, pgx.Identifier{w.db.Schema.Name(), t}.Sanitize()))
	}
	return "SELECT md5(concat_ws(',', " + strings.Join(parts, ", ") + "))"
}
