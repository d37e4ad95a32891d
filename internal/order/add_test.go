package order_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/catalog"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/order"
)

// shop is an order room with a workflow of each ordering.
func shop(t *testing.T) (*order.Orders, *db.DB) {
	t.Helper()
	d := dbtest.New(t, dbtest.WithScenarioClock())
	docs, err := definition.Parse("", []byte(`
kind: queue
name: Q1
---
kind: agent
name: a1
processes: 1
---
kind: workflow
name: free
ordering: independent
steps: [{job: go, noop: true, agent: a1}]
---
kind: workflow
name: keyed
ordering: {key: order}
steps: [{job: go, noop: true, agent: a1}]
---
kind: workflow
name: templated
ordering: {key: "{customer.id}/{region}"}
steps: [{job: go, noop: true, agent: a1}]
---
kind: workflow
name: strict
ordering: strict
wait_limit: 1h
attachments: [{name: scan, size: 5}]
steps: [{job: go, noop: true, agent: a1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New(d, db.NoWaker{}).Apply(t.Context(), docs, "test"); err != nil {
		t.Fatal(err)
	}
	return order.New(d, db.NoWaker{}), d
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	if _, err := o.Add(t.Context(), json.RawMessage(`[{"workflow":"free","ref":"taken"}]`), me); err != nil {
		t.Fatal(err)
	}
	attachments := func(list string) string { return `{"workflow":"free","attachments":` + list + `}` }
	for name, tt := range map[string]struct {
		order string
		code  string
		says  string
	}{
		"text":                     {`"free"`, "invalid_order", "an object"},
		"null":                     {`null`, "invalid_order", "an object"},
		"a list":                   {`[]`, "invalid_order", "an object"},
		"unknown field":            {`{"workflow":"free","prio":1}`, "invalid_order", "prio"},
		"no workflow":              {`{}`, "unknown_workflow", ""},
		"workflow null":            {`{"workflow":null}`, "unknown_workflow", ""},
		"workflow a number":        {`{"workflow":7}`, "unknown_workflow", "7"},
		"unknown workflow":         {`{"workflow":"nowhere"}`, "unknown_workflow", "nowhere"},
		"unknown queue":            {`{"workflow":"free","queue":"Q9"}`, "unknown_queue", "Q9"},
		"queue empty":              {`{"workflow":"free","queue":""}`, "unknown_queue", ""},
		"key not allowed":          {`{"workflow":"free","key":"k"}`, "key_not_allowed", "free"},
		"key not allowed, strict":  {`{"workflow":"strict","key":"k"}`, "key_not_allowed", "strict"},
		"key beside a template":    {`{"workflow":"templated","key":"k"}`, "key_not_allowed", "templated"},
		"no key":                   {`{"workflow":"keyed"}`, "key_required", "keyed"},
		"key null":                 {`{"workflow":"keyed","key":null}`, "key_required", ""},
		"key empty":                {`{"workflow":"keyed","key":""}`, "key_required", ""},
		"key a number":             {`{"workflow":"keyed","key":7}`, "invalid_order", "string"},
		"key too long":             {`{"workflow":"keyed","key":"` + strings.Repeat("k", 257) + `"}`, "invalid_key", "256"},
		"key too long in bytes":    {`{"workflow":"keyed","key":"` + strings.Repeat("ü", 129) + `"}`, "invalid_key", "256"},
		"template without args":    {`{"workflow":"templated"}`, "key_required", "template"},
		"template without a part":  {`{"workflow":"templated","args":{"customer":{"id":1}}}`, "key_required", ""},
		"template with null":       {`{"workflow":"templated","args":{"customer":{"id":null},"region":"eu"}}`, "key_required", ""},
		"template with empty":      {`{"workflow":"templated","args":{"customer":{"id":""},"region":"eu"}}`, "key_required", ""},
		"template with an object":  {`{"workflow":"templated","args":{"customer":{"id":{}},"region":"eu"}}`, "key_required", ""},
		"template too long":        {`{"workflow":"templated","args":{"customer":{"id":1},"region":"` + strings.Repeat("r", 255) + `"}}`, "invalid_key", ""},
		"reference empty":          {`{"workflow":"free","ref":""}`, "invalid_order", "ref"},
		"reference a number":       {`{"workflow":"free","ref":7}`, "invalid_order", "ref"},
		"reference too long":       {`{"workflow":"free","ref":"` + strings.Repeat("r", 257) + `"}`, "invalid_order", "ref"},
		"reference taken":          {`{"workflow":"free","ref":"taken","args":{}}`, "reference_conflict", "taken"},
		"args a list":              {`{"workflow":"free","args":[]}`, "invalid_order", "args"},
		"args text":                {`{"workflow":"free","args":"x"}`, "invalid_order", "args"},
		"due in words":             {`{"workflow":"free","due":"tomorrow"}`, "invalid_order", "tomorrow"},
		"due without a zone":       {`{"workflow":"free","due":"2030-01-31T08:00:00"}`, "invalid_order", "2030"},
		"due on no day":            {`{"workflow":"free","due":"2030-02-31T08:00:00Z"}`, "invalid_order", "2030"},
		"due a number":             {`{"workflow":"free","due":5}`, "invalid_order", "5"},
		"due negative":             {`{"workflow":"free","due":"-5m"}`, "invalid_order", "-5m"},
		"due empty":                {`{"workflow":"free","due":""}`, "invalid_order", "due"},
		"wait limit in words":      {`{"workflow":"free","wait_limit":"long"}`, "invalid_order", "long"},
		"wait limit a number":      {`{"workflow":"free","wait_limit":5}`, "invalid_order", "5"},
		"wait limit negative":      {`{"workflow":"free","wait_limit":"-1h"}`, "invalid_order", "-1h"},
		"attachments an object":    {attachments(`{}`), "invalid_attachment", "list"},
		"attachment a name":        {attachments(`["scan"]`), "invalid_attachment", "object"},
		"attachment without name":  {attachments(`[{}]`), "invalid_attachment", "name"},
		"attachment with a path":   {attachments(`[{"name":"../x"}]`), "invalid_attachment", "../x"},
		"attachment twice":         {attachments(`[{"name":"x"},{"name":"x"}]`), "invalid_attachment", "twice"},
		"attachment, unknown part": {attachments(`[{"name":"x","colour":1}]`), "invalid_attachment", "colour"},
		"attachment, size":         {attachments(`[{"name":"x","size":-1}]`), "invalid_attachment", "size"},
		"attachment, half a byte":  {attachments(`[{"name":"x","size":0.5}]`), "invalid_attachment", "size"},
		"attachment, hash":         {attachments(`[{"name":"x","sha256":"abc"}]`), "invalid_attachment", "sha256"},
		"attachment, no base64":    {attachments(`[{"name":"x","content":"a"}]`), "invalid_attachment", "base64"},
		"attachment, other size":   {attachments(`[{"name":"x","content":"aGVsbG8=","size":4}]`), "invalid_attachment", "5 bytes"},
		"attachment, other hash":   {attachments(`[{"name":"x","content":"aGVsbG8=","sha256":"` + strings.Repeat("0", 64) + `"}]`), "invalid_attachment", "sha256"},
		"too many attachments":     {attachments(`[` + strings.Repeat(`{"name":"x"},`, 1000) + `{"name":"x"}]`), "invalid_attachment", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// All or none, also of the good ones around it.
			call := `[{"workflow":"free","ref":"` + "before " + name + `"},` + tt.order + `,{"workflow":"free"}]`
			_, err := o.Add(t.Context(), json.RawMessage(call), me)
			r, ok := db.AsRefusal(err)
			if !ok {
				t.Fatalf("%v, want %s", err, tt.code)
			}
			if r.Code != tt.code || !strings.Contains(r.Message, tt.says) || !strings.HasPrefix(r.Message, "orders[1]: ") {
				t.Errorf("%s: %s, want %s about %q at orders[1]", r.Code, r.Message, tt.code, tt.says)
			}
			var detail struct{ Index int }
			if err := json.Unmarshal([]byte(r.Detail), &detail); err != nil || detail.Index != 1 {
				t.Errorf("detail %s, want index 1 (%v)", r.Detail, err)
			}
		})
	}
	t.Cleanup(func() {
		if n := value[int](t, d, `SELECT count(*) FROM siding.orders`); n != 1 {
			t.Errorf("%d orders are there, want 1", n)
		}
		if n := value[int](t, d, `SELECT count(*) FROM siding.order_references`); n != 1 {
			t.Errorf("%d references are there, want 1", n)
		}
	})
}

func TestAddRefusesCalls(t *testing.T) {
	t.Parallel()
	o, _ := shop(t)
	for name, tt := range map[string]struct{ call, code string }{
		"an object": {`{"workflow":"free"}`, "invalid_order"},
		"null":      {`null`, "invalid_order"},
		"too many":  {`[` + strings.Repeat(`{"workflow":"free"},`, 10_000) + `{"workflow":"free"}]`, "too_many_orders"},
	} {
		if _, err := o.Add(t.Context(), json.RawMessage(tt.call), me); refusal(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
	if added, err := o.Add(t.Context(), json.RawMessage(`[]`), me); err != nil || len(added) != 0 {
		t.Errorf("nothing: %v, %v", added, err)
	}
}

// The forms of what can be given, and what they mean.
func TestAddForms(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	now := value[time.Time](t, d, `SELECT siding.clock()`)
	for name, tt := range map[string]struct {
		order string
		due   time.Duration // from now; 0: none ahead
		limit time.Duration // the wait's deadline from now; 0: none
	}{
		"seconds":                  {`{"workflow":"free","due":"90s"}`, 90 * time.Second, 0},
		"milliseconds":             {`{"workflow":"free","due":"250ms"}`, 250 * time.Millisecond, 0},
		"hours and minutes":        {`{"workflow":"free","due":"1h30m"}`, 90 * time.Minute, 0},
		"days":                     {`{"workflow":"free","due":"2d"}`, 48 * time.Hour, 0},
		"a fraction":               {`{"workflow":"free","due":"1.5h"}`, 90 * time.Minute, 0},
		"an instant":               {`{"workflow":"free","due":"` + now.Add(time.Hour).UTC().Format(time.RFC3339) + `"}`, time.Hour, 0},
		"another zone":             {`{"workflow":"free","due":"` + now.Add(time.Hour).In(time.FixedZone("", 3*3600)).Format(time.RFC3339Nano) + `"}`, time.Hour, 0},
		"now":                      {`{"workflow":"free","due":"0s"}`, 0, 0},
		"the past":                 {`{"workflow":"free","due":"2001-01-01T00:00:00Z"}`, 0, 0},
		"nothing":                  {`{"workflow":"free","due":null,"wait_limit":null,"args":null,"attachments":null,"ref":null,"key":null,"queue":null}`, 0, 0},
		"limit of the workflow":    {`{"workflow":"strict"}`, 0, time.Hour},
		"a limit of its own":       {`{"workflow":"strict","wait_limit":"15m"}`, 0, 15 * time.Minute},
		"from the due time on":     {`{"workflow":"strict","due":"2h"}`, 2 * time.Hour, 3 * time.Hour},
		"not from one in the past": {`{"workflow":"strict","due":"2001-01-01T00:00:00Z"}`, 0, time.Hour},
		"expects nothing":          {`{"workflow":"strict","attachments":[]}`, 0, 0},
		"has all that it expects":  {`{"workflow":"strict","attachments":[{"name":"x","content":""}]}`, 0, 0},
		"expects something else":   {`{"workflow":"free","attachments":[{"name":"x"}],"wait_limit":"1m"}`, 0, time.Minute},
		"waits for ever":           {`{"workflow":"free","attachments":[{"name":"x"}]}`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			added, err := o.Add(t.Context(), json.RawMessage(`[`+tt.order+`]`), me)
			if err != nil {
				t.Fatal(err)
			}
			var due, limit *time.Time
			var closed bool
			if err := d.Pool.QueryRow(t.Context(), d.SQL(`SELECT due_at, due_closed, wait_deadline FROM siding.orders WHERE id = $1`), added[0].ID).
				Scan(&due, &closed, &limit); err != nil {
				t.Fatal(err)
			}
			if closed != (tt.due > 0) || closed && due.Sub(now) != tt.due {
				t.Errorf("due %v, closed: %v; want %s from %v", due, closed, tt.due, now)
			}
			if (limit != nil) != (tt.limit > 0) || limit != nil && limit.Sub(now) != tt.limit {
				t.Errorf("waits until %v, want %s from %v", limit, tt.limit, now)
			}
		})
	}
}

// Orders that bring content stand beside others in one call.
func TestAddWithContent(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	added, err := o.Add(t.Context(), json.RawMessage(`[
		{"workflow":"free","attachments":[{"name":"x","content":"aGVsbG8="},{"name":"y"}]},
		{"workflow":"free","attachments":null}, {"workflow":"free"}, {"workflow":"free","attachments":[]},
		{"workflow":"free","ref":"r","attachments":[{"name":"x","content":"aGVsbG8=","size":5}]}]`), me)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"x complete 5, y pending", "", "", "", "x complete 5"}
	for i, a := range added {
		got := value[string](t, d, `
			SELECT coalesce(string_agg(concat_ws(' ', name, state, size), ', ' ORDER BY name), '') FROM siding.attachments WHERE order_id = $1`, a.ID)
		if got != want[i] {
			t.Errorf("orders[%d]: %q, want %q", i, got, want[i])
		}
	}
	again, err := o.Add(t.Context(), json.RawMessage(`[{"workflow":"free","ref":"r","attachments":[{"name":"x","content":"aGVsbG8=","size":5}]}]`), me)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]order.Added{{ID: added[4].ID, Existing: true}}, again); diff != "" {
		t.Errorf("again: %s", diff)
	}
}

// The same reference and content is the same order, in one call, in several,
// and after its end; other content is refused.
func TestReferences(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	const one = `{"workflow":"free","ref":"r","args":{"a":1,"b":[2]}}`
	add := func(call string) ([]order.Added, error) { return o.Add(t.Context(), json.RawMessage(call), me) }
	first, err := add(`[` + one + `,` + one + `,{"workflow":"free","ref":"s"}]`)
	if err != nil {
		t.Fatal(err)
	}
	id := first[0].ID
	if diff := cmp.Diff([]order.Added{{ID: id}, {ID: id, Existing: true}, {ID: first[2].ID}}, first); diff != "" || id == first[2].ID {
		t.Errorf("two of one call: %s", diff)
	}
	again, err := add(`[{"args":{"b":[2],"a":1},"ref":"r","workflow":"free"},{"workflow":"free","ref":"t"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]order.Added{{ID: id, Existing: true}, {ID: again[1].ID}}, again); diff != "" {
		t.Errorf("written otherwise: %s", diff)
	}
	for _, other := range []string{`{"workflow":"free","ref":"r"}`, `{"workflow":"free","ref":"r","args":{"a":1,"b":[3]}}`} {
		if _, err := add(`[` + other + `]`); refusal(err) != "reference_conflict" {
			t.Errorf("%s: %v", other, err)
		}
	}
	if _, err := add(`[{"workflow":"free","ref":"u","args":{}},{"workflow":"free","ref":"u","args":{"a":1}}]`); refusal(err) != "reference_conflict" {
		t.Errorf("two contents in one call: %v", err)
	}
	if err := o.Cancel(t.Context(), id, me, "test"); err != nil {
		t.Fatal(err)
	}
	if after, err := add(`[` + one + `]`); err != nil || after[0] != (order.Added{ID: id, Existing: true}) {
		t.Errorf("after its end: %v, %v", after, err)
	}
	if n := value[int](t, d, `SELECT count(*) FROM siding.inputs`); n != 3 {
		t.Errorf("%d orders were added, want 3", n)
	}
}

// Two calls at once with one reference: one order.
func TestReferenceOfTwoCallsAtOnce(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	type answer struct {
		added []order.Added
		err   error
	}
	answers := make(chan answer)
	const calls = 8
	for n := range calls {
		go func() {
			// References in another order in every other call.
			list := []string{`{"workflow":"free","ref":"r1"}`, `{"workflow":"free","ref":"r2"}`}
			added, err := o.Add(t.Context(), json.RawMessage(`[`+list[n%2]+`,`+list[1-n%2]+`]`), me)
			if err == nil && n%2 == 1 {
				added[0], added[1] = added[1], added[0]
			}
			answers <- answer{added, err}
		}()
	}
	ids, fresh := map[string]bool{}, 0
	for range calls {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
			continue
		}
		ids[fmt.Sprint(a.added[0].ID, a.added[1].ID)] = true
		if !a.added[0].Existing {
			fresh++
		}
	}
	if len(ids) != 1 || fresh != 1 {
		t.Errorf("answers %v, of which %d are new", ids, fresh)
	}
	if n := value[int](t, d, `SELECT count(*) FROM siding.orders`); n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
}

// Positions and arrivals follow the order of the call.
func TestAddKeepsTheOrderOfTheCall(t *testing.T) {
	t.Parallel()
	o, d := shop(t)
	call := `[`
	for i := range 200 {
		call += fmt.Sprintf(`{"workflow":"keyed","key":"k%d"},`, i%3)
	}
	added, err := o.Add(t.Context(), json.RawMessage(strings.TrimSuffix(call, ",")+`]`), me)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, d, `SELECT siding.intake(1000, true)`)
	var ids []int64
	for _, a := range added {
		ids = append(ids, a.ID)
	}
	for _, by := range []string{"position", "key_arrival"} {
		got := value[[]int64](t, d, `SELECT array_agg(id ORDER BY `+by+`) FROM siding.orders`)
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Errorf("by %s: %s", by, diff)
		}
	}
	if n := value[int](t, d, `SELECT count(*) FROM siding.orders WHERE candidate`); n != 3 {
		t.Errorf("%d candidates, want one of each key", n)
	}
}

func value[T any](t *testing.T, d *db.DB, statement string, args ...any) T {
	t.Helper()
	var v T
	if err := d.Pool.QueryRow(contextOf(t), d.SQL(statement), args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return v
}
