package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that says which folder of Postgres
// binaries is used.
const BinEnv = "SIDING_PG_BIN"

// Binaries are the programs of one Postgres installation.
type Binaries struct {
	// Dir is the folder that holds initdb and postgres, links resolved.
	Dir string
	// Major is the major version; data directories belong to one.
	Major int
}

// NotFoundError says that this machine has no Postgres binaries.
type NotFoundError struct {
	// Searched has every place that was looked at, in order.
	Searched []string
}

// Error names the places and what to do.
func (e *NotFoundError) Error() string {
	return "no Postgres server binaries (initdb, postgres) found; searched " + strings.Join(e.Searched, ", ") +
		". Install them (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; " +
		"macOS: brew install postgresql), or name their folder in " + BinEnv
}

// usualFolders are where packages put the binaries of several versions.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",                              // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                       // Fedora, RHEL (PGDG)
	"/opt/homebrew/opt/postgresql*/bin",                      // Homebrew, Apple silicon
	"/usr/local/opt/postgresql*/bin",                         // Homebrew, Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin",     // Postgres.app
	"/usr/local/pgsql/bin",                                   // built from source
	"/opt/bitnami/postgresql/bin", "/usr/libexec/postgresql", // others
}

// Find returns the Postgres installations of this machine in the order in
// which they are preferred: the folder in SIDING_PG_BIN alone if it is set;
// else PATH, then the usual folders, newest version first. The error is a
// *NotFoundError if there is none.
func Find(ctx context.Context) ([]Binaries, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", BinEnv, dir, err)
		}
		return []Binaries{b}, nil
	}
	return find(ctx, os.Getenv("PATH"), usualFolders)
}

func find(ctx context.Context, path string, folders []string) ([]Binaries, error) {
	found := inPath(ctx, path)
	var usual []Binaries
	for _, pattern := range folders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", pattern, err)
		}
		for _, dir := range dirs {
			if b, err := inspect(ctx, dir); err == nil {
				usual = append(usual, b)
			}
		}
	}
	slices.SortStableFunc(usual, func(a, b Binaries) int { return b.Major - a.Major })
	for _, b := range usual {
		if !slices.Contains(found, b) {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, &NotFoundError{Searched: append([]string{"$" + BinEnv, "$PATH"}, folders...)}
	}
	return found, nil
}

// inPath looks through PATH. Debian links single programs into it, so it is
// the folder behind the link that counts.
func inPath(ctx context.Context, path string) []Binaries {
	var found []Binaries
	for _, dir := range filepath.SplitList(path) {
		for _, program := range []string{"initdb", "postgres"} {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, program))
			if err != nil {
				continue
			}
			b, err := inspect(ctx, filepath.Dir(real))
			if err == nil && !slices.Contains(found, b) {
				found = append(found, b)
			}
		}
	}
	return found
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect checks that a folder has what is needed, and asks for the version.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Binaries{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Binaries{}, err
	}
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("ask %s/postgres for its version: %w", dir, err)
	}
	m := versionOutput.FindSubmatch(out)
	if m == nil {
		return Binaries{}, fmt.Errorf("%s/postgres doesn't say its version: %q", dir, out)
	}
	major, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return Binaries{}, err
	}
	return Binaries{Dir: dir, Major: major}, nil
}

// choose returns the first of the installations, or the first of the major
// version that existing data needs (0: there is none).
func choose(found []Binaries, major int) (Binaries, error) {
	if len(found) == 0 {
		return Binaries{}, errors.New("no Postgres binaries")
	}
	if major == 0 {
		return found[0], nil
	}
	var have []string
	for _, b := range found {
		if b.Major == major {
			return b, nil
		}
		have = append(have, fmt.Sprintf("%d (%s)", b.Major, b.Dir))
	}
	return Binaries{}, fmt.Errorf("the data is of Postgres %d, but the binaries here are of %s; install Postgres %d, "+
		"or move the data over by pg_dump or pg_upgrade", major, strings.Join(have, ", "), major)
}
