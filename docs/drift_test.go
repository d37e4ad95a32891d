package docs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/agent/protocol"
	"github.com/siding-dev/siding/internal/api"
	"github.com/siding-dev/siding/internal/db"
)

// section is the part of a page below a heading, up to the next one of its
// level.
func section(t *testing.T, path, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(read(t, filepath.Join(root, path)), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %s", path, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// all returns the submatches of a pattern, sorted, each joined by a space.
func all(pattern, text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, strings.Join(m[1:], " "))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func compare(t *testing.T, what string, code, documented []string) {
	t.Helper()
	if len(code) == 0 {
		t.Fatalf("%s: none found in the code: is the pattern right?", what)
	}
	if diff := cmp.Diff(code, documented); diff != "" {
		t.Errorf("%s: code (-) and document (+) differ:\n%s", what, diff)
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	code := all(`(?m)^\t"([a-z_]+)":\s+\{http\.`, read(t, filepath.Join(root, "internal/api/codes.go")))
	compare(t, "codes", code, all("(?m)^\\| `([a-z_]+)` \\| [0-9]", section(t, "docs/api.md", "Codes")))
}

// TestRoutes compares the routes and their roles with the API's description of
// itself, which needs no database.
func TestRoutes(t *testing.T) {
	t.Parallel()
	handler := api.New(api.Deps{DB: &db.DB{}, Controller: struct{ protocol.Controller }{}})
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var description struct {
		Paths map[string]map[string]struct {
			Role string `json:"x-role"`
		}
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &description); err != nil {
		t.Fatal(err)
	}
	var code []string
	for path, operations := range description.Paths {
		for method, o := range operations {
			path := strings.TrimPrefix(path, api.Base)
			// Described once, for queues.
			if regexp.MustCompile(`^/(locks|agents|workflows)(/\{name\})?$`).MatchString(path) {
				continue
			}
			code = append(code, strings.ToUpper(method)+" "+path+" "+o.Role)
		}
	}
	slices.Sort(code)
	compare(t, "routes", code, all("(?m)^\\| `([A-Z]+ /[^`]*)` \\| ([a-z]+) \\|", section(t, "docs/api.md", "Routes")))
}

// TestViews compares views and columns with their comments in the SQL.
func TestViews(t *testing.T) {
	t.Parallel()
	var sql string
	files, err := filepath.Glob(filepath.Join(root, "internal/report/sql/*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		sql += read(t, file)
	}
	documented := section(t, "docs/sql.md", "Views")
	compare(t, "views", all(`CREATE OR REPLACE VIEW siding_report\.(\w+)`, sql), all(`(?m)^### (\w+)$`, documented))
	for _, part := range strings.Split(documented, "\n### ")[1:] {
		view, text, _ := strings.Cut(part, "\n")
		compare(t, "columns of "+view, all(`COMMENT ON COLUMN siding_report\.`+view+`\.(\w+) IS`, sql), all("(?m)^\\| `(\\w+)` \\|", text))
	}
}

// TestConfiguration looks for every key of the example in the reference.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	var code []string
	var part string
	for _, line := range strings.Split(read(t, filepath.Join(root, "config.example.yaml")), "\n") {
		if m := regexp.MustCompile(`^([a-z_]+):`).FindStringSubmatch(line); m != nil {
			part = m[1]
		}
		if m := regexp.MustCompile(`^  ([a-z_]+):`).FindStringSubmatch(line); m != nil {
			code = append(code, part+"."+m[1])
		}
	}
	slices.Sort(code)
	var rows string
	for _, line := range strings.Split(section(t, "docs/operations.md", "Configuration"), "\n") {
		if strings.HasPrefix(line, "| `") {
			rows += strings.SplitN(line, "|", 3)[1] + "\n"
		}
	}
	compare(t, "configuration keys", code, all("`([a-z]+\\.[a-z_]+)`", rows))
}

// TestMetrics compares the names of our own metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var code string
	for _, file := range []string{"dispatch.go", "state.go"} {
		code += read(t, filepath.Join(root, "internal/metrics", file))
	}
	var rows string
	for _, line := range strings.Split(section(t, "docs/operations.md", "Monitoring"), "\n") {
		if strings.HasPrefix(line, "| `siding_") && strings.Count(line, "|") == 3 {
			rows += strings.SplitN(line, "|", 3)[1] + "\n"
		}
	}
	// The table of alerts begins its rows with metrics too; they are in here anyway.
	compare(t, "metrics", all(`"(siding_[a-z_]+)"`, code), all("`(siding_[a-z_]+)[`{]", rows))
}

// TestRooms looks for every folder of the code in the architecture.
func TestRooms(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for _, e := range entries {
		if e.IsDir() {
			code = append(code, e.Name())
		}
	}
	compare(t, "rooms", code, all("`internal/([a-z]+)/`", section(t, "docs/architecture.md", "Rooms")))
}

// TestScenarioWords looks for every step and expectation of the format.
func TestScenarioWords(t *testing.T) {
	t.Parallel()
	steps := section(t, "docs/scenarios.md", "Steps")
	_, readers, _ := strings.Cut(read(t, filepath.Join(root, "internal/scenario/parse_steps.go")), "stepReaders = map[string]stepReader{")
	readers, _, _ = strings.Cut(readers, "\n\t}")
	expectations := section(t, "docs/scenarios.md", "Expectations")
	for what, words := range map[string][]string{
		steps:        all(`(?m)^\t\t"([a-z_]+)":`, readers),
		expectations: all(`(?m)^\t\{"([a-z_]+)",`, read(t, filepath.Join(root, "internal/scenario/parse_expect.go"))),
	} {
		if len(words) < 10 {
			t.Fatalf("found only %v: is the pattern right?", words)
		}
		for _, word := range words {
			if !strings.Contains(what, "`"+word+":") {
				t.Errorf("docs/scenarios.md doesn't describe %s", word)
			}
		}
	}
}
