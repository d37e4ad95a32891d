package pgworld_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/scenario"
	"github.com/siding-dev/siding/internal/scenario/pgworld"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// scenariosDir holds the product's scenario files.
const scenariosDir = "../../../scenarios"

// TestScenarios runs every scenario file, each on a database of its own.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenariosDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no scenario files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := scenario.Parse(filepath.Base(file), src)
			if err != nil {
				t.Fatal(err)
			}
			world := pgworld.New(dbtest.New(t, dbtest.WithScenarioClock()))
			result, err := scenario.Run(t.Context(), s, world)
			if err != nil {
				t.Error(err)
			}
			if !result.OK {
				var out strings.Builder
				if err := result.Print(&out); err != nil {
					t.Fatal(err)
				}
				t.Errorf("the scenario doesn't agree\n%s", out.String())
			}
		})
	}
}
