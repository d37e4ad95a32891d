package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/siding-dev/siding/internal/definition"
)

// TestDefinitionsAreTheProducts: what the format makes of queues, locks, agents
// and workflows, short forms included, is what the product reads.
func TestDefinitionsAreTheProducts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenariosDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(filepath.Base(file), src)
		if err != nil {
			t.Fatal(err)
		}
		docs := s.Definitions
		for _, step := range s.Steps {
			if apply, ok := step.action.(*applyStep); ok {
				docs = append(docs, apply.doc)
			}
		}
		for _, doc := range docs {
			checked++
			if _, err := definition.ParseJSON(definition.Kind(doc.Kind), doc.Name, doc.JSON); err != nil {
				t.Errorf("%s:%d: %s %s: %v\n%s", s.File, doc.Line, doc.Kind, doc.Name, err, doc.JSON)
			}
		}
	}
	if checked == 0 {
		t.Fatal("no definition was checked")
	}
}
