//go:build unix && !linux && !darwin

package agent

// bootID is unknown here.
func bootID() string { return "" }

// processStartTime is unknown here, so no leftover is ever recognised.
func processStartTime(int) string { return "" }
