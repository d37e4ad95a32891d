package pgworld

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/siding-dev/siding/internal/scenario"
)

// RunFiles runs scenario files one after the other in one schema of the
// database at url, a direct connection, and writes what was observed beside
// what was expected, for people or (asJSON) for programs. It reports whether
// all agree; an error means that a file can't be read or is no scenario, or
// that the database broke. The schema is gone afterwards.
func RunFiles(ctx context.Context, url string, files []string, output io.Writer, asJSON bool) (allAgree bool, err error) {
	// All files first: a mistake in the last one needs no run of the others.
	scenarios := make([]*scenario.Scenario, len(files))
	var mistakes []error
	for i, file := range files {
		src, err := os.ReadFile(file)
		if err == nil {
			scenarios[i], err = scenario.Parse(file, src)
		}
		mistakes = append(mistakes, err)
	}
	if err := errors.Join(mistakes...); err != nil {
		return false, err
	}
	world, err := Open(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, world.Close(ctx)) }()

	var results []*scenario.Result
	for i, s := range scenarios {
		if i > 0 {
			if err := world.Reset(ctx); err != nil {
				return false, err
			}
		}
		result, err := scenario.Run(ctx, s, world)
		results = append(results, result)
		if !asJSON {
			if err := result.Print(output); err != nil {
				return false, err
			}
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", s.File, err)
		}
	}
	if asJSON {
		if err := scenario.WriteJSON(output, results); err != nil {
			return false, err
		}
	}
	return scenario.AllAgree(results), nil
}
