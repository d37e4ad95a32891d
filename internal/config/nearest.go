package config

import "fmt"

// unknownKey says which key was probably meant.
func unknownKey(key string, known map[string]any) error {
	best, least := "", 1+len(key)/3
	for _, candidate := range sortedKeys(known) {
		if d := distance(key, candidate); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return fmt.Errorf("%s: unknown key; config.example.yaml lists all", key)
	}
	return fmt.Errorf("%s: unknown key; did you mean %s?", key, best)
}

// distance is the number of insertions, deletions and replacements between two
// words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
