package order

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db"
)

// Filter says which orders List gives; what is empty doesn't filter.
type Filter struct {
	// State is one of the states, or live or ended.
	State    string
	Workflow string
	// Queue is a queue's name; "-" means the orders without one.
	Queue string
	Key   string
	// RefPrefix gives the orders whose reference begins so, by reference; else
	// the order of a list is by id, newest first.
	RefPrefix string
	// Cursor is the Next of the page before.
	Cursor string
	// Limit is the length of a page, 1 to MaxPage. Default: 100.
	Limit int

	scan int // scanRows; less in tests
}

// MaxPage bounds a page.
const MaxPage = 1000

// scanRows bounds how many orders one call of List looks at, so that a filter
// that fits few of them doesn't read millions. Such a page is shorter than the
// limit and still has a Next.
const scanRows = 100_000

// Page is a part of a list.
type Page struct {
	Orders []Order `json:"orders"`
	// Next continues the list; empty at its end. A page can be short, or empty,
	// and have a Next.
	Next string `json:"next,omitempty" doc:"Cursor of the next page; absent at the end. A page may be short and have one."`
}

var finalStates = map[string]bool{"finished": true, "cancelled": true, "ended": true}

// List lists orders. Refusals: unknown_workflow, unknown_queue, invalid_cursor,
// invalid_filter.
func (o *Orders) List(ctx context.Context, f Filter) (Page, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.scan == 0 {
		f.scan = scanRows
	}
	if f.Limit < 1 || f.Limit > MaxPage {
		return Page{}, db.Refuse("invalid_filter", 422, "limit %d is not between 1 and %d", f.Limit, MaxPage)
	}
	s, err := o.search(ctx, f)
	if err != nil {
		return Page{}, fmt.Errorf("list orders: %w", err)
	}
	ids, next, err := o.find(ctx, s)
	if err != nil {
		return Page{}, fmt.Errorf("list orders: %w", err)
	}
	orders, err := o.Many(ctx, ids)
	if err != nil {
		return Page{}, err
	}
	return Page{Orders: orders, Next: next}, nil
}

// search is a filter with its names resolved.
type search struct {
	Filter
	steps []int32
	queue *int32
	after string // cursor, decoded
}

func (o *Orders) search(ctx context.Context, f Filter) (search, error) {
	s := search{Filter: f}
	switch f.State {
	case "", "live", "ended", "waiting", "running", "suspended", "attention", "dead", "finished", "cancelled":
	default:
		r := db.Refuse("invalid_filter", 422, "%s is not a state", strconv.Quote(f.State))
		r.Hint = "One of waiting, running, suspended, attention, dead, finished, cancelled; or live, ended."
		return s, r
	}
	var err error
	if s.after, err = openCursor(f.Cursor); err != nil {
		return s, err
	}
	if f.Workflow != "" {
		rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
			SELECT s.step_id FROM siding.workflows w
			JOIN siding.workflow_versions v ON v.workflow_id = w.workflow_id
			JOIN siding.steps s ON s.version_id = v.version_id WHERE w.name = $1`), f.Workflow)
		if err != nil {
			return s, err
		}
		if s.steps, err = pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil {
			return s, err
		}
		if len(s.steps) == 0 {
			return s, db.Refuse("unknown_workflow", 422, "there is no workflow %s", f.Workflow)
		}
	}
	switch f.Queue {
	case "":
	case "-":
		s.queue = new(int32)
	default:
		rows, err := o.db.Pool.Query(ctx, o.db.SQL(`SELECT queue_id FROM siding.queues WHERE name = $1`), f.Queue)
		if err != nil {
			return s, err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			return s, err
		}
		if len(ids) == 0 {
			return s, db.Refuse("unknown_queue", 422, "there is no queue %s", f.Queue)
		}
		s.queue = &ids[0]
	}
	return s, nil
}

// conditions on o, the union of live and ended orders. They are written so that
// an empty filter costs nothing.
const conditions = `
	  AND ($2 = '' OR key = $2)
	  AND ($3 = '' OR $3 = 'live' AND live OR $3 = 'ended' AND NOT live OR state::text = $3)
	  AND ($4::int[] IS NULL OR step_id = ANY ($4))
	  AND ($5::int IS NULL OR queue_id = $5)`

// find returns the ids of a page and the cursor behind it.
func (o *Orders) find(ctx context.Context, s search) ([]int64, string, error) {
	if s.RefPrefix != "" {
		return o.findByReference(ctx, s)
	}
	before := int64(math.MaxInt64)
	if s.after != "" {
		var err error
		if before, err = strconv.ParseInt(s.after, 10, 64); err != nil {
			return nil, "", invalidCursor()
		}
	}
	sources := windows(s)
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(
		`SELECT id FROM (`+strings.Join(sources, ` UNION ALL `)+`) o WHERE true`+conditions+` ORDER BY id DESC LIMIT $7`),
		before, s.Key, s.State, s.steps, s.queue, int64(0), s.Limit)
	if err != nil {
		return nil, "", err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, "", err
	}
	var last int64
	if len(ids) == s.Limit {
		last = ids[len(ids)-1]
		if len(sources) == 1 {
			return ids, sealCursor(strconv.FormatInt(last, 10)), nil
		}
	}
	// Where did the look end, in the source where it ended first?
	var bound int64
	for _, source := range sources {
		var end, n int64
		err := o.db.Pool.QueryRow(ctx, o.db.SQL(
			`SELECT coalesce(min(id), 0), count(*) FROM `+source+` o WHERE $2::text IS NOT NULL AND $3::text IS NOT NULL`+
				` AND ($4::int[] IS NULL OR true) AND ($5::int IS NULL OR true)`),
			before, s.Key, s.State, s.steps, s.queue, last).Scan(&end, &n)
		if err != nil {
			return nil, "", err
		}
		if n == int64(s.scan) {
			bound = max(bound, end)
		}
	}
	if bound == 0 {
		if last == 0 {
			return ids, "", nil
		}
		return ids, sealCursor(strconv.FormatInt(last, 10)), nil
	}
	// Below the bound only one of the sources was looked at; that comes again
	// with the next page.
	for len(ids) > 0 && ids[len(ids)-1] < bound {
		ids = ids[:len(ids)-1]
	}
	return ids, sealCursor(strconv.FormatInt(bound, 10)), nil
}

// windows are the statements that read the next s.scan ids between $6 and $1,
// of live orders and of ended ones, unless the state rules them out.
func windows(s search) (sources []string) {
	limit := ` ORDER BY id DESC LIMIT ` + strconv.Itoa(s.scan) + `)`
	byKey := ``
	if s.Key != "" {
		// Keys belong to spaces, of which there are few.
		byKey = ` AND key_hash = ANY (ARRAY(SELECT siding.key_hash(key_space_id, $2) FROM siding.key_spaces))`
	}
	if !finalStates[s.State] {
		sources = append(sources,
			`(SELECT id, true AS live, state, step_id, queue_id, key FROM siding.orders WHERE id < $1 AND id > $6`+byKey+limit)
	}
	if s.State == "" || finalStates[s.State] {
		sources = append(sources,
			`(SELECT order_id AS id, false AS live, state, step_id, queue_id, key FROM siding.outcomes WHERE order_id < $1 AND order_id > $6`+
				strings.ReplaceAll(limit, "BY id", "BY order_id"))
	}
	return sources
}

// findByReference is find for a prefix of references, in their order.
func (o *Orders) findByReference(ctx context.Context, s search) ([]int64, string, error) {
	rows, err := o.db.Pool.Query(ctx, o.db.SQL(`
		WITH refs AS (
			SELECT ref, order_id FROM siding.order_references
			WHERE ref > $1 AND ref >= $6 AND ref <= $6 || chr(1114111) ORDER BY ref LIMIT `+strconv.Itoa(s.scan)+`
		), o AS (
			SELECT r.ref, r.order_id AS id, l.id IS NOT NULL AS live, coalesce(l.state, e.state) AS state,
			       coalesce(l.step_id, e.step_id) AS step_id, coalesce(l.queue_id, e.queue_id) AS queue_id, coalesce(l.key, e.key) AS key
			FROM refs r
			LEFT JOIN siding.orders l ON l.id = r.order_id
			LEFT JOIN LATERAL (SELECT * FROM siding.outcomes x WHERE x.order_id = r.order_id AND l.id IS NULL LIMIT 1) e ON true
		)
		SELECT id, ref FROM o WHERE state IS NOT NULL`+conditions+` ORDER BY ref LIMIT $7`),
		s.after, s.Key, s.State, s.steps, s.queue, s.RefPrefix, s.Limit)
	if err != nil {
		return nil, "", err
	}
	var (
		ids  []int64
		id   int64
		last string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &last}, func() error {
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if len(ids) == s.Limit {
		return ids, sealCursor(last), nil
	}
	var n int
	err = o.db.Pool.QueryRow(ctx, o.db.SQL(`
		SELECT count(*), coalesce(max(ref), '') FROM (
			SELECT ref FROM siding.order_references
			WHERE ref > $1 AND ref >= $2 AND ref <= $2 || chr(1114111) ORDER BY ref LIMIT `+strconv.Itoa(s.scan)+`) r`),
		s.after, s.RefPrefix).Scan(&n, &last)
	if err != nil || n < s.scan {
		return ids, "", err
	}
	return ids, sealCursor(last), nil
}

// Cursors are opaque to callers, so that their content can change.
func sealCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func openCursor(cursor string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", invalidCursor()
	}
	return string(text), nil
}

func invalidCursor() error {
	r := db.Refuse("invalid_cursor", 422, "the cursor is not one that this list gave")
	r.Hint = "Pass the \"next\" of the page before, with the same filter."
	return r
}
