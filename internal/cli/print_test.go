package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	t.Parallel()
	table := Table{Header: []string{"id", "state", "note"}}
	table.Row(7, "ready", "")
	table.Row(1234567, "held", "größer, with a long note that nothing wraps, whatever the width of the terminal may be in the end")
	var out strings.Builder
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `ID       STATE  NOTE
7        ready  -
1234567  held   größer, with a long note that nothing wraps, whatever the width of the terminal may be in the end
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format Format
		table  Table
		want   string
	}{
		"json":  {FormatJSON, Table{Header: []string{"a"}}, "{\n  \"a\": \"<1>\"\n}\n"},
		"empty": {FormatTable, Table{Header: []string{"a"}, Empty: "no orders"}, "no orders\n"},
		"foot":  {FormatTable, Table{Header: []string{"a"}, Rows: [][]string{{"1"}}, Foot: "more"}, "A\n1\nmore\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			p := Printer{Out: &out, Format: c.format}
			if err := p.Print(map[string]string{"a": "<1>"}, c.table); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	var f Format
	if f.Set("xml") == nil || f.Set("json") != nil || f != FormatJSON {
		t.Error("formats are read wrong")
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	p := Printer{Now: now}
	for d, want := range map[time.Duration]string{
		0:                                "now",
		-1500 * time.Millisecond:         "1.5s ago",
		-42 * time.Second:                "42s ago",
		-(3*time.Minute + 4*time.Second): "3m04s ago",
		90 * time.Minute:                 "in 1h30m",
		-75 * time.Hour:                  "3d03h ago",
	} {
		at := now.Add(d)
		if got := p.Time(&at); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
	if got := p.Time(nil); got != "" {
		t.Errorf("no time is %q", got)
	}
	if got := Duration(1700 * time.Microsecond); got != "2ms" {
		t.Errorf("got %q", got)
	}
}
