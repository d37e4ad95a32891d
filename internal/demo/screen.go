package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
)

// screen shows the orders: on a terminal as one table that is drawn anew, else
// as a line per change.
type screen struct {
	out   io.Writer
	live  bool
	drawn int // lines of the table on the terminal
	words map[string]string
	table string
}

// say writes a line of text, above the table.
func (s *screen) say(at time.Duration, text string) {
	s.wipe()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", at.Seconds(), text)
	if s.live {
		s.draw()
	}
}

// show brings the table up to date. Orders without a place yet have all gates
// closed that they may turn out not to need, which would only confuse; they have
// one within milliseconds.
func (s *screen) show(at time.Duration, orders []client.Order) {
	if slices.ContainsFunc(orders, func(o client.Order) bool { return slices.Contains(o.Gates, "intake") }) {
		return
	}
	if s.live {
		if table := tableOf(orders); table != s.table {
			s.wipe()
			s.table = table
			s.draw()
		}
		return
	}
	var changes []string
	words := map[string]string{}
	for _, o := range orders {
		words[o.Ref] = o.Word
		if before, known := s.words[o.Ref]; !known {
			changes = append(changes, o.Ref+" "+o.Word)
		} else if before != o.Word {
			changes = append(changes, fmt.Sprintf("%s %s -> %s", o.Ref, before, o.Word))
		}
	}
	s.words = words
	if len(changes) > 0 {
		fmt.Fprintf(s.out, "%5.1fs  %s\n", at.Seconds(), strings.Join(changes, ", "))
	}
}

// wipe removes the table from the terminal.
func (s *screen) wipe() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

func (s *screen) draw() {
	if s.table != "" {
		fmt.Fprint(s.out, "\n"+s.table+"\n")
		s.drawn = strings.Count(s.table, "\n") + 2
	}
}

// end leaves the last table where it is.
func (s *screen) end() { s.drawn = 0 }

func tableOf(orders []client.Order) string {
	t := cli.Table{Header: []string{"order", "key", "state", "attachment", "waited when ready"}}
	for _, o := range orders {
		expects, waited := "", ""
		if o.Ref == "J2" {
			expects = attachmentName
		}
		if o.ReadyWaitMillis != nil {
			waited = cli.Duration(time.Duration(*o.ReadyWaitMillis) * time.Millisecond)
		}
		t.Row(o.Ref, o.Key, o.Word, expects, waited)
	}
	var out strings.Builder
	if err := t.Write(&out); err != nil {
		return err.Error()
	}
	return out.String()
}

// summary says what was observed beside what was expected.
func (d *demo) summary() (bool, error) {
	d.screen.end()
	t := cli.Table{Header: []string{"what", "expected", "observed", ""}}
	ok := true
	for _, r := range d.results {
		verdict := "ok"
		if !r.ok() {
			ok, verdict = false, "FAILED"
		}
		t.Row(r.what, r.expected, r.observed, verdict)
	}
	t.Foot = "all as expected"
	if !ok {
		t.Foot = "NOT as expected"
	}
	fmt.Fprintln(d.Out)
	p := cli.Printer{Out: d.Out, Format: cli.FormatTable}
	if err := p.Print(nil, t); err != nil {
		return false, err
	}
	return ok, nil
}
