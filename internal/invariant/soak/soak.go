// Package soak says how much of the same a test does: little in a usual run,
// more when SIDING_SOAK asks for a multiple of it.
package soak

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Env is the environment variable with the factor.
const Env = "SIDING_SOAK"

// Times is n, or the multiple of it that Env asks for.
func Times(n int) int {
	if factor, err := strconv.Atoi(os.Getenv(Env)); err == nil && factor > 1 {
		return n * factor
	}
	return n
}

// Check is rapid.Check with Times(checks) checks, for properties that need a
// database and take their time. Where -rapid.checks was given, that holds.
func Check(t *testing.T, checks int, prop func(*rapid.T)) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	each, err := strconv.Atoi(f.Value.String())
	if err != nil {
		t.Fatalf("-rapid.checks: %v", err)
	}
	if f.Value.String() != f.DefValue {
		rapid.Check(t, prop)
		return
	}
	failed := false
	for left := Times(checks); left > 0 && !failed; left -= each {
		calls := 0
		rapid.Check(t, func(rt *rapid.T) {
			// What failed is run again, to make it smaller.
			if calls++; calls > left && !failed {
				return
			}
			passed := false
			defer func() { failed = failed || !passed }()
			prop(rt)
			passed = true
		})
	}
}
