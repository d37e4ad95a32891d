package scenario

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sampleResults() []*Result {
	good := &Result{File: "a.yaml", Title: "a", OK: true, Steps: 2, Started: []string{"J1"}, Comparisons: []Comparison{
		{Line: 3, What: "started", Expected: []string{"J1"}, Observed: []string{"J1"}, OK: true},
		{Line: 4, What: "started", Expected: []string{}, Observed: []string{}, OK: true},
	}}
	bad := &Result{
		File: "b.yaml", Title: "b", Steps: 9,
		Failure: &Failure{Line: 12, Step: "cancel", Code: "order_final", Message: "J1 is final"},
		Comparisons: []Comparison{
			{Line: 7, What: "states J1", Expected: "ready", Observed: "finished"},
			{Line: 7, What: "attempts J1", Expected: int64(1), Observed: int64(1), OK: true},
		},
	}
	return []*Result{good, bad}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, r := range sampleResults() {
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
	}
	asked := &Result{File: "c.yaml", Title: "c", OK: true, Started: []string{"J2", "J1"}}
	if err := asked.Print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `ok      a.yaml: a
           3  started: J1
           4  started: none
FAILED  b.yaml: b
┌──────┬─────────────┬──────────┬──────────┬────┐
│ LINE │ WHAT        │ EXPECTED │ OBSERVED │ OK │
├──────┼─────────────┼──────────┼──────────┼────┤
│ 7    │ states J1   │ ready    │ finished │ NO │
│ 7    │ attempts J1 │ 1        │ 1        │ ok │
└──────┴─────────────┴──────────┴──────────┴────┘
b.yaml:12: cancel: refused with order_final: J1 is final
ok      c.yaml: c
        started: J2, J1
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := WriteJSON(&out, sampleResults()); err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"ok": false,
		"scenarios": []any{
			map[string]any{
				"file": "a.yaml", "scenario": "a", "ok": true, "steps": 2.0, "started": []any{"J1"},
				"comparisons": []any{
					map[string]any{"line": 3.0, "what": "started", "expected": []any{"J1"}, "observed": []any{"J1"}, "ok": true},
					map[string]any{"line": 4.0, "what": "started", "expected": []any{}, "observed": []any{}, "ok": true},
				},
			},
			map[string]any{
				"file": "b.yaml", "scenario": "b", "ok": false, "steps": 9.0,
				"failure": map[string]any{"line": 12.0, "step": "cancel", "code": "order_final", "message": "J1 is final"},
				"comparisons": []any{
					map[string]any{"line": 7.0, "what": "states J1", "expected": "ready", "observed": "finished", "ok": false},
					map[string]any{"line": 7.0, "what": "attempts J1", "expected": 1.0, "observed": 1.0, "ok": true},
				},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAllAgree(t *testing.T) {
	t.Parallel()
	results := sampleResults()
	for name, test := range map[string]struct {
		results []*Result
		want    bool
	}{
		"all":         {results[:1], true},
		"not all":     {results, false},
		"none at all": {nil, false},
		"one missing": {[]*Result{results[0], nil}, false},
	} {
		if got := AllAgree(test.results); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
