// Package docs_test holds the documents to the repository: links lead
// somewhere, definitions, scenarios and configurations in them can be read, and
// headings that code cites exist. drift_test.go compares their tables with the
// code.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/config"
	"github.com/siding-dev/siding/internal/definition"
	"github.com/siding-dev/siding/internal/scenario"
)

// root is the repository as seen from this folder.
const root = ".."

// page is one Markdown document.
type page struct {
	path string // below root
	text string
}

func pages(t *testing.T) []page {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	var list []page
	for _, path := range paths {
		list = append(list, page{strings.TrimPrefix(path, root+"/"), read(t, path)})
	}
	if len(list) < 8 {
		t.Fatalf("found only %d documents", len(list))
	}
	return list
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence       = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	codeSpan    = regexp.MustCompile("`[^`\n]*`")
	linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading     = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// prose is a page without its code.
func prose(text string) string {
	return codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
}

// headings of a page, outside its code blocks.
func headings(text string) []string {
	var list []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		list = append(list, strings.TrimSpace(m[1]))
	}
	return list
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is what a heading is addressed by on GitHub.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, m := range linkPattern.FindAllStringSubmatch(prose(p.text), -1) {
			target := m[1]
			if strings.Contains(target, "://") {
				continue
			}
			if err := follow(p, target); err != nil {
				t.Errorf("%s: link %s: %v", p.path, target, err)
			}
		}
	}
}

// follow says what is wrong with a link of a page.
func follow(p page, target string) error {
	file, fragment, _ := strings.Cut(target, "#")
	path := filepath.Join(root, p.path)
	if file != "" {
		path = filepath.Join(root, filepath.Dir(p.path), file)
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if fragment == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, h := range headings(string(text)) {
		if anchor(h) == fragment {
			return nil
		}
	}
	return fmt.Errorf("%s has no such heading", path)
}

var definitionsOf = regexp.MustCompile(`(?ms)^cat > \S+\.yaml <<'(\w+)'\n(.*?)^(\w+)$`)

// TestExamples reads all YAML in the documents as what it is: a scenario,
// definitions, or a configuration.
func TestExamples(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for _, p := range pages(t) {
		for i, m := range fence.FindAllStringSubmatch(p.text, -1) {
			var texts []string
			switch m[1] {
			case "yaml":
				texts = append(texts, m[2])
			case "sh":
				for _, file := range definitionsOf.FindAllStringSubmatch(m[2], -1) {
					texts = append(texts, file[2])
				}
			}
			for _, text := range texts {
				kind, err := parse(t, text)
				counts[kind]++
				if err != nil {
					t.Errorf("%s: code block %d, %s: %v", p.path, i+1, kind, err)
				}
			}
		}
	}
	for _, kind := range []string{"scenario", "definitions", "configuration"} {
		if counts[kind] == 0 {
			t.Errorf("the documents have no %s: nothing was checked", kind)
		}
	}
}

// parse reads a text as what its first lines say that it is.
func parse(t *testing.T, text string) (kind string, err error) {
	t.Helper()
	switch {
	case regexp.MustCompile(`(?m)^scenario:`).MatchString(text):
		_, err = scenario.Parse("example", []byte(text))
		return "scenario", err
	case regexp.MustCompile(`(?m)^kind:`).MatchString(text):
		_, err = definition.Parse("example", []byte(text))
		return "definitions", err
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Options{File: file})
	if err == nil {
		err = c.ValidateDatabase()
	}
	return "configuration", err
}

var (
	citation = regexp.MustCompile(`docs/([a-z]+)\.md, "?([A-Z].{0,80})`)
	// A comment that goes on in the next line.
	continued = regexp.MustCompile(`\n\s*(//|--|\*|#)\s*`)
)

// TestCitations looks up the headings that comments and messages cite as
// "docs/page.md, Heading".
func TestCitations(t *testing.T) {
	t.Parallel()
	known := map[string][]string{}
	for _, p := range pages(t) {
		known[strings.TrimSuffix(filepath.Base(p.path), ".md")] = headings(p.text)
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); len(name) > 2 && name[0] == '.' || name == "bin" || name == "docs" {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".sql" {
			return nil
		}
		text := continued.ReplaceAllString(read(t, path), " ")
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			found++
			if !startsWithHeading(m[2], known[m[1]]) {
				t.Errorf("%s cites docs/%s.md, %.40s: no such heading", path, m[1], m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("found only %d citations: is the pattern right?", found)
	}
}

func startsWithHeading(text string, headings []string) bool {
	for _, h := range headings {
		if strings.HasPrefix(text, h) {
			return true
		}
	}
	return false
}
