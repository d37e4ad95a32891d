package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse looks for texts that make the reader panic, that it takes without
// saying where it found the documents, or whose normal form it refuses.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile(filepath.Join("testdata", "example.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	for _, text := range []string{
		referring, someAgent, someWorkflow + "- &s {job: x, run: \"a\\n\"}\n- *s\n", `{"kind":"queue","name":"a"}{"kind":1}`,
		"--- !t\n? a\n: b\n<<: *x\n", "a: |\n  x\n...\n'", "[[{a: b}, c", "- - - a", "%YAML 1.2\n---\n", "\ufeffkind: >-\n\n\t", "kind: queue\rname: a\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := strings.Count(string(text), "\n") + strings.Count(string(text), "\r") + 1
		for _, name := range []string{"f.yaml", "f.json"} {
			docs, err := Parse(name, text)
			for _, p := range problemsOf(t, err) {
				if p.Line < 1 || p.Column < 1 || p.Line > lines {
					t.Errorf("problem without a place in the text: %v", p)
				}
			}
			for _, doc := range docs {
				normal, err := doc.Normal()
				if err != nil {
					t.Fatalf("Normal: %v", err)
				}
				if _, err := ParseJSON(doc.Kind, doc.Name(), normal); err != nil {
					t.Fatalf("normal form is refused: %v\n%s", err, normal)
				}
			}
		}
	})
}
