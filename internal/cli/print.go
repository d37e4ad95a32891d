// Package cli writes what commands have to say: tables for people, JSON for
// programs, errors with what to do about them.
package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// Format is how answers are written.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
)

// Set makes it a flag's value.
func (f *Format) Set(text string) error {
	switch Format(text) {
	case FormatTable, FormatJSON:
		*f = Format(text)
		return nil
	}
	return fmt.Errorf("%q is neither table nor json", text)
}

// String is the format's name.
func (f *Format) String() string { return string(*f) }

// Type names the value in help texts.
func (f *Format) Type() string { return "table|json" }

// Printer writes answers.
type Printer struct {
	Out    io.Writer
	Format Format
	// Now is what times are counted from.
	Now time.Time
}

// Table is an answer for people.
type Table struct {
	Header []string
	Rows   [][]string
	// Empty is written instead of a table without rows.
	Empty string
	// Foot is written below the table, if set.
	Foot string
}

// Row appends a row; values that are empty are shown as "-".
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.Rows = append(t.Rows, row)
}

// Print writes value as JSON, or the table.
func (p *Printer) Print(value any, t Table) error {
	if p.Format == FormatJSON {
		return p.JSON(value)
	}
	if len(t.Rows) == 0 && t.Empty != "" {
		return p.Line("%s", t.Empty)
	}
	if err := t.Write(p.Out); err != nil {
		return err
	}
	if t.Foot != "" {
		return p.Line("%s", t.Foot)
	}
	return nil
}

// Say writes value as JSON, or one line for people.
func (p *Printer) Say(value any, format string, args ...any) error {
	if p.Format == FormatJSON {
		return p.JSON(value)
	}
	return p.Line(format, args...)
}

// JSON writes a value as indented JSON; a list that is nil as an empty one.
func (p *Printer) JSON(value any) error {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.IsNil() && v.Type() != reflect.TypeFor[json.RawMessage]() {
		value = []any{}
	}
	encoder := json.NewEncoder(p.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Line writes one line.
func (p *Printer) Line(format string, args ...any) error {
	if _, err := fmt.Fprintf(p.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Write writes the table without lines around it.
func (t Table) Write(w io.Writer) error {
	var out bytes.Buffer
	pad := tw.Padding{Left: tw.Empty, Right: "  ", Overwrite: true}
	table := tablewriter.NewTable(&out,
		tablewriter.WithRendition(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		}),
		tablewriter.WithPadding(pad),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
	)
	header := make([]string, len(t.Header))
	for i, h := range t.Header {
		header[i] = strings.ToUpper(h)
	}
	table.Header(header)
	for _, row := range t.Rows {
		if err := table.Append(row); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	if err := table.Render(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for line := range strings.Lines(out.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// Time says how long ago or ahead an instant is; nothing for none.
func (p *Printer) Time(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := p.Now.Sub(*t)
	if d < time.Second && d > -time.Second {
		return "now"
	}
	if d < 0 {
		return "in " + Duration(-d)
	}
	return Duration(d) + " ago"
}

// Duration writes a length of time in its two largest units.
func Duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Size writes a number of bytes.
func Size(bytes int64) string {
	if bytes < 0 {
		return ""
	}
	return humanize.IBytes(uint64(bytes))
}

// Count writes a number with separators.
func Count(n int64) string { return humanize.Comma(n) }
