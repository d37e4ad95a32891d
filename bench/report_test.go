package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummarise(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		values []float64
		want   Summary
	}{
		"none": {},
		"one":  {values: []float64{4}, want: Summary{Median: 4, Min: 4, Max: 4}},
		"odd":  {values: []float64{9, 1, 4}, want: Summary{Median: 4, Min: 1, Max: 9}},
		"even": {values: []float64{9, 1, 4, 2}, want: Summary{Median: 3, Min: 1, Max: 9}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Summarise(tc.values)); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	t.Parallel()
	run := func(entrant string, round, done int, elapsed time.Duration) Run {
		return Run{Entrant: entrant, Round: round, Result: Result{Added: done, Done: done, Elapsed: elapsed, AddElapsed: elapsed / 4}}
	}
	runs := []Run{
		run("river", 1, 10_000, time.Second), run("siding", 1, 30_000, time.Second),
		run("river", 2, 10_000, 2*time.Second), run("siding", 2, 10_000, time.Second),
		run("river", 3, 10_000, 4*time.Second), run("siding", 3, 1_000_000, time.Second),
	}
	var got strings.Builder
	if err := WriteTable(&got, []string{"river", "siding"}, runs); err != nil {
		t.Fatal(err)
	}
	const want = `| runner | rounds | jobs/s median | min | max | adding s | total s | ratio median | min | max |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |
| river | 3 | 5,000 | 2,500 | 10,000 | 0.50 | 2.00 | 1.00 | 1.00 | 1.00 |
| siding | 3 | 30,000 | 10,000 | 1,000,000 | 0.25 | 1.00 | 3.00 | 2.00 | 400.00 |
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
