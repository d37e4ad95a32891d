package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// Result is what one scenario showed.
type Result struct {
	File  string `json:"file"`
	Title string `json:"scenario"`
	// OK is true if nothing was refused unexpectedly and all comparisons agree.
	OK          bool         `json:"ok"`
	Steps       int          `json:"steps"`
	Failure     *Failure     `json:"failure,omitempty"`
	Comparisons []Comparison `json:"comparisons"`
	// Started are all starts of a run that reached its end, in order.
	Started []string `json:"started,omitempty"`
}

// Failure is the step that ended a scenario before its end.
type Failure struct {
	Line int    `json:"line"`
	Step string `json:"step"`
	// Code is the product's, empty if it refused nothing.
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// Comparison is one thing observed beside what was expected. Expected and
// Observed are a string, a number or a list of strings.
type Comparison struct {
	Line     int    `json:"line"`
	What     string `json:"what"`
	Expected any    `json:"expected"`
	Observed any    `json:"observed"`
	OK       bool   `json:"ok"`
}

func (r *Result) judge() {
	r.OK = r.Failure == nil && !slices.ContainsFunc(r.Comparisons, func(c Comparison) bool { return !c.OK })
}

// AllAgree says whether every scenario agrees with what it expects, which is
// when the command exits with 0. No scenario at all doesn't.
func AllAgree(results []*Result) bool {
	return len(results) > 0 && !slices.ContainsFunc(results, func(r *Result) bool { return r == nil || !r.OK })
}

// WriteJSON writes the results as one JSON document, for programs.
func WriteJSON(w io.Writer, results []*Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if results == nil {
		results = []*Result{}
	}
	if err := encoder.Encode(struct {
		OK        bool      `json:"ok"`
		Scenarios []*Result `json:"scenarios"`
	}{AllAgree(results), results}); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// Print writes one scenario's result for people: one line for each comparison
// if all agree, else the table of expected and observed.
func (r *Result) Print(w io.Writer) error {
	var out strings.Builder
	verdict := "ok"
	if !r.OK {
		verdict = "FAILED"
	}
	fmt.Fprintf(&out, "%-6s  %s: %s\n", verdict, r.File, r.Title)
	switch {
	case r.OK && len(r.Comparisons) == 0:
		fmt.Fprintf(&out, "        started: %s\n", show(r.Started))
	case r.OK:
		for _, c := range r.Comparisons {
			fmt.Fprintf(&out, "        %4d  %s: %s\n", c.Line, c.What, show(c.Observed))
		}
	default:
		if err := r.table(&out); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	if f := r.Failure; f != nil {
		fmt.Fprintf(&out, "%s:%d: %s: ", r.File, f.Line, f.Step)
		if f.Code != "" {
			fmt.Fprintf(&out, "refused with %s: ", f.Code)
		}
		fmt.Fprintf(&out, "%s\n", f.Message)
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

func (r *Result) table(w io.Writer) error {
	if len(r.Comparisons) == 0 {
		return nil
	}
	table := tablewriter.NewTable(w,
		tablewriter.WithRowAutoWrap(tw.WrapNormal),
		tablewriter.WithRowMaxWidth(60),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
	)
	table.Header("line", "what", "expected", "observed", "ok")
	for _, c := range r.Comparisons {
		ok := "ok"
		if !c.OK {
			ok = "NO"
		}
		if err := table.Append(strconv.Itoa(c.Line), c.What, show(c.Expected), show(c.Observed), ok); err != nil {
			return err
		}
	}
	return table.Render()
}

// show writes a value of a comparison in one line.
func show(v any) string {
	names, ok := v.([]string)
	if !ok {
		return fmt.Sprint(v)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
