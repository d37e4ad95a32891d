package main

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/bench"
)

func TestParse(t *testing.T) {
	t.Parallel()
	type want struct {
		Entrants []string
		ArgBytes []int
		Rounds   int
		Work     bench.Work
	}
	cases := map[string]struct {
		args []string
		want want
	}{
		"defaults": {
			want: want{Entrants: []string{"river"}, ArgBytes: []int{200, 1024}, Rounds: 3, Work: bench.Work{Orders: 100_000}},
		},
		"everything": {
			args: []string{"--url", "postgres://h/", "-n", "9", "--arg-bytes", "50", "--rounds", "2", "--scenario", "keys", "--preload", "--runner", "river:workers=2", "--runner", "river"},
			want: want{Entrants: []string{"river:workers=2", "river"}, ArgBytes: []int{50}, Rounds: 2, Work: bench.Work{Orders: 9, Keys: 1_000, Preload: true}},
		},
		"queues": {
			args: []string{"--scenario", "queues"},
			want: want{Entrants: []string{"river"}, ArgBytes: []int{200, 1024}, Rounds: 3, Work: bench.Work{Orders: 100_000, PenalisedQueues: 2}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := parse(tc.args, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			got := want{ArgBytes: o.argBytes, Rounds: o.rounds, Work: o.work}
			for _, e := range o.entrants {
				got.Entrants = append(got.Entrants, e.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"no orders":            {"-n", "0"},
		"more than numbers":    {"-n", "9000001"},
		"no rounds":            {"--rounds", "0"},
		"size isn't a number":  {"--arg-bytes", "200,x"},
		"size is too small":    {"--arg-bytes", "5"},
		"unknown scenario":     {"--scenario", "x"},
		"unknown runner":       {"--runner", "x"},
		"unknown option":       {"--runner", "river:x=1"},
		"the same runner":      {"--runner", "river", "--runner", "river"},
		"an argument too many": {"x"},
		"an unknown flag":      {"--x"},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse(args, io.Discard); err == nil {
				t.Errorf("%v is accepted", args)
			}
		})
	}
}
