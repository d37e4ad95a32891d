package pgworld_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/scenario/pgworld"
)

// write puts a scenario into a file of the test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const head = `
scenario: two orders
agents: [{name: a1, type: standalone, processes: 1}]
workflows: [{name: w, ordering: independent, agent: a1}]
steps:
  - add: [{order: J1, workflow: w}, {order: J2, workflow: w}]
`

// schemas lists what stands in the database besides Postgres' own.
func schemas(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `
		SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestRunFiles(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	agrees := write(t, "agrees.yaml", head+"  - run: until_idle\n  - expect: {started: [J1, J2]}\n")
	differs := write(t, "differs.yaml", head+"  - run: until_idle\n  - expect: {started: [J2, J1]}\n")
	refused := write(t, "refused.yaml", head+"  - cancel: [J3]\n")

	for _, test := range []struct {
		name  string
		files []string
		agree bool
		shows []string
	}{
		// Twice the same names: each file begins with an empty world.
		{"all agree", []string{agrees, agrees}, true, []string{"started: J1, J2"}},
		{"one differs", []string{differs, agrees}, false, []string{"FAILED", "J2, J1", "ok "}},
		{"one is refused", []string{refused}, false, []string{"order_not_found"}},
	} {
		var out strings.Builder
		agree, err := pgworld.RunFiles(t.Context(), url, test.files, &out, false)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if agree != test.agree {
			t.Errorf("%s: all agree: got %v\n%s", test.name, agree, out.String())
		}
		for _, text := range test.shows {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q isn't in the output\n%s", test.name, text, out.String())
			}
		}
		if left := schemas(t, url); len(left) > 0 {
			t.Errorf("%s: schemas left: %v", test.name, left)
		}
	}
}

func TestRunFilesWritesJSON(t *testing.T) {
	t.Parallel()
	file := write(t, "one.yaml", head+"  - expect: {states: {J1: ready, J2: held}}\n")
	var out strings.Builder
	agree, err := pgworld.RunFiles(t.Context(), dbtest.EmptyURL(t), []string{file}, &out, true)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK        bool
		Scenarios []struct {
			Comparisons []struct {
				What, Expected, Observed string
				OK                       bool
			}
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if agree || got.OK || len(got.Scenarios) != 1 || len(got.Scenarios[0].Comparisons) != 2 {
		t.Fatalf("agree %v, output\n%s", agree, out.String())
	}
	for i, want := range []bool{true, false} {
		if c := got.Scenarios[0].Comparisons[i]; c.OK != want || c.Observed != "ready" {
			t.Errorf("comparison %d: %+v", i, c)
		}
	}
}

func TestRunFilesReportsMistakesBeforeRunning(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	wrong := write(t, "wrong.yaml", head+"  - jump: [J1]\n")
	// No database is asked: this one doesn't exist.
	_, err := pgworld.RunFiles(t.Context(), "postgres://nobody@127.0.0.1:1/nothing", []string{missing, wrong}, &strings.Builder{}, false)
	if err == nil || !strings.Contains(err.Error(), "missing.yaml") || !strings.Contains(err.Error(), "jump") {
		t.Errorf("got %v, want both mistakes", err)
	}
}
