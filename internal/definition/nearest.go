package definition

import (
	"slices"
	"strings"
)

// nearest finds the candidate that word was probably meant to be: the one with
// the fewest typing errors, if they are few for its length.
func nearest(word string, candidates []string) (string, bool) {
	best, bestDistance := "", len(word)
	for _, c := range candidates {
		limit := min(2, len(c)/2)
		if d := distance(strings.ToLower(word), c, limit); d <= limit && d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best, best != ""
}

// suggest is the hint for a word that isn't among those that are known.
func suggest(word string, known []string) string {
	if best, ok := nearest(word, known); ok {
		return "did you mean " + best + "?"
	}
	return "known: " + strings.Join(known, ", ")
}

// distance counts insertions, deletions, replacements and swaps of neighbours
// between two words. Beyond limit it returns any number above it.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	before, previous := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		if slices.Min(row) > limit {
			return limit + 1
		}
		before, previous = previous, row
	}
	return previous[len(b)]
}
