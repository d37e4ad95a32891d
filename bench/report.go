package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Summary is the spread of one figure over the rounds.
type Summary struct{ Median, Min, Max float64 }

// Summarise returns the spread of the values, all 0 if there are none. The
// median of an even number is the mean of the two in the middle.
func Summarise(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Summary{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1]}
}

// WriteTable writes the runs as a Markdown table, an entrant per row. The
// ratio compares jobs/s with the first entrant's in the same round, so that it
// suffers less from a machine whose speed changes; more than 1 is faster than
// the first entrant.
func WriteTable(w io.Writer, entrants []string, runs []Run) error {
	rows := [][]string{
		{"runner", "rounds", "jobs/s median", "min", "max", "adding s", "total s", "ratio median", "min", "max"},
		{"---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:"},
	}
	baseline := map[int]float64{}
	for _, run := range runs {
		if run.Entrant == entrants[0] {
			baseline[run.Round] = run.Result.PerSecond()
		}
	}
	for _, entrant := range entrants {
		var rates, adding, total, ratios []float64
		for _, run := range runs {
			if run.Entrant != entrant {
				continue
			}
			rates = append(rates, run.Result.PerSecond())
			adding = append(adding, run.Result.AddElapsed.Seconds())
			total = append(total, run.Result.Elapsed.Seconds())
			if base := baseline[run.Round]; base > 0 {
				ratios = append(ratios, run.Result.PerSecond()/base)
			}
		}
		rate, ratio := Summarise(rates), Summarise(ratios)
		rows = append(rows, []string{
			entrant, fmt.Sprint(len(rates)),
			thousands(rate.Median), thousands(rate.Min), thousands(rate.Max),
			fmt.Sprintf("%.2f", Summarise(adding).Median), fmt.Sprintf("%.2f", Summarise(total).Median),
			fmt.Sprintf("%.2f", ratio.Median), fmt.Sprintf("%.2f", ratio.Min), fmt.Sprintf("%.2f", ratio.Max),
		})
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// thousands writes a figure without decimals, digits in groups of three.
func thousands(figure float64) string {
	digits := fmt.Sprintf("%.0f", figure)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
