package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/db/dbtest"
)

// asController makes the test binary the controller, for tests that start it
// as a process of its own.
const asController = "SIDING_TEST_AS_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		os.Exit(run(os.Args[1:]))
	}
	// Commands must not find the configuration of the machine.
	for _, name := range []string{"SIDING_CONFIG", urlEnv, tokenEnv} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	if err := os.Setenv(asController, "1"); err != nil {
		panic(err)
	}
	dbtest.Main(m)
}

// outcome is what a command said.
type outcome struct {
	out, err string
	code     int
}

// command runs a command in this process.
func command(ctx context.Context, in string, args ...string) outcome {
	var out, errs strings.Builder
	code := execute(ctx, args, cli.Streams{In: strings.NewReader(in), Out: &out, Err: &errs})
	return outcome{out.String(), errs.String(), code}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestCommands compares the whole tree of commands, with their flags.
func TestCommands(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		fmt.Fprintf(&got, "%s\n    %s\n", strings.TrimSpace(strings.TrimSuffix(c.UseLine(), "[flags]")), c.Short)
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			fmt.Fprintf(&got, "    --%s %s\n", f.Name, f.Value.Type())
		})
		for _, sub := range c.Commands() {
			if sub.Short == "" {
				t.Errorf("%s has no description", sub.CommandPath())
			}
			walk(sub)
		}
	}
	walk((&app{format: cli.FormatTable}).root())
	golden := filepath.Join("testdata", "commands.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the commands have changed; if they should, run the test with -update (-want +got):\n%s", diff)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		args string
		in   string
		want string
	}{
		"unknown command":     {args: "ordr", want: `unknown command "ordr"`},
		"unknown subcommand":  {args: "order shwo 1", want: "did you mean show?"},
		"unknown flag":        {args: "order list --colour", want: "unknown flag: --colour"},
		"unknown format":      {args: "order list -o xml", want: `"xml" is neither table nor json`},
		"missing argument":    {args: "why", want: "accepts 1 arg(s), received 0"},
		"missing flag":        {args: "order resolve 1", want: `required flag(s) "action" not set`},
		"two places":          {args: "order move 1 --first --last", want: "none of the others can be"},
		"no place":            {args: "order move 1", want: "at least one of the flags"},
		"unknown kind":        {args: "list thing", want: `"thing" is not one of queue, lock, agent, workflow`},
		"bad address":         {args: "order list --url localhost", want: "localhost"},
		"nothing to add":      {args: "order add", want: "--workflow or -f is missing"},
		"both ways to add":    {args: "order add -f - --workflow w", want: "--workflow can't be given with -f"},
		"an empty file":       {args: "order add -f -", in: " \n", want: "holds no orders"},
		"bad argument":        {args: "order add --workflow w --arg x", want: `--arg "x" is not name=value`},
		"bad size":            {args: "order add --workflow w --attachment a,size=big", want: `size "big" is not a number of bytes`},
		"bad attachment":      {args: "order add --workflow w --attachment a,md5=1", want: "neither size=N nor sha256=HEX"},
		"missing file":        {args: "apply -f " + missing, want: "no such file"},
		"no file":             {args: "apply", want: "-f FILE is missing"},
		"missing scenario":    {args: "scenario run", want: "requires at least 1 arg(s)"},
		"missing config":      {args: "serve --config " + missing, want: missing},
		"no database":         {args: "serve --config /dev/null", want: "database.url: missing"},
		"no agent name":       {args: "agent --config /dev/null", want: "agent.name: missing"},
		"down by accident":    {args: "migrate down --to 0", want: "say --yes"},
		"short token":         {args: "token hash", in: "secret", want: "can be guessed"},
		"forecast of a queue": {args: "forecast queue Q1", want: `"queue" is neither agent nor lock`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t.Context(), c.in, strings.Fields(c.args)...)
			if got.code != cli.ExitFailed || !strings.Contains(got.err, c.want) || got.out != "" {
				t.Errorf("exit code %d, output %q, error %q; want code 2 and %q", got.code, got.out, got.err, c.want)
			}
		})
	}
}

func TestWithoutController(t *testing.T) {
	t.Parallel()
	if got := command(t.Context(), "0123456789abcdef\n", "token", "hash"); got.code != 0 ||
		got.out != "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f\n" {
		t.Errorf("hash: %+v", got)
	}
	if got := command(t.Context(), "", "order", "list", "--url", "http://127.0.0.1:1"); got.code != cli.ExitFailed || !strings.Contains(got.err, "refused") {
		t.Errorf("nobody there: %+v", got)
	}
	definitions := "kind: queue\nname: Q1\n---\nkind: queue\nname: Q2\ncapacity: 0\n"
	got := command(t.Context(), definitions, "apply", "--dry-run", "-f", "-")
	if got.code != cli.ExitNo || !strings.Contains(got.err, "-:6:11: capacity") || !strings.Contains(got.err, "code:  invalid_definition") {
		t.Errorf("bad definitions: %+v", got)
	}
	got = command(t.Context(), strings.ReplaceAll(definitions, "capacity: 0", "capacity: 1"), "apply", "--dry-run", "-f", "-")
	if got.code != 0 || !strings.Contains(got.out, "queue  Q2    -:4") {
		t.Errorf("good definitions: %+v", got)
	}
	if got := command(t.Context(), "", "completion", "bash"); got.code != 0 || !strings.Contains(got.out, "controller") {
		t.Errorf("completion: %+v", got)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	for _, step := range []struct {
		args, want string
	}{
		{"migrate status", "schema s1: version 0 of"},
		{"migrate up", "routines current"},
		{"migrate status", "routines current"},
		{"migrate up -o json", `"routines_current": true`},
		{"migrate down --to 0 --yes", "schema s1: version 0 of"},
		{"migrate up", "routines current"},
	} {
		got := command(t.Context(), "", append(strings.Fields(step.args), "--config", os.DevNull, "--database-url", url, "--schema", "s1")...)
		if got.code != 0 || !strings.Contains(got.out, step.want) {
			t.Fatalf("%s: %+v, want %q", step.args, got, step.want)
		}
	}
}

// TestScenario runs the command on a configured database: agreeing, differing,
// and no scenario at all.
func TestScenario(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	text := "scenario: wrong\nagents: [{name: a1, type: standalone, processes: 1}]\nworkflows: [{name: w, ordering: independent, agent: a1}]\n" +
		"steps:\n  - add: [{order: J1, workflow: w}]\n  - expect: {states: {J1: finished}}\n"
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		file, want string
		code       int
	}{
		{"../../scenarios/01-five-jobs.yaml", "started: J2, J4", 0},
		{wrong, "FAILED", cli.ExitNo},
		{"main_test.go", "", cli.ExitFailed},
	} {
		got := command(t.Context(), "", "scenario", "run", "--config", os.DevNull, "--database-url", url, step.file)
		if got.code != step.code || !strings.Contains(got.out, step.want) {
			t.Errorf("%s: %+v, want code %d and %q", step.file, got, step.code, step.want)
		}
	}
}

// TestDemo runs the whole demo: a controller in this process, an agent in one of
// its own, real commands.
func TestDemo(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, format: cli.FormatTable}
	if err := a.demo(t.Context(), dbtest.EmptyURL(t), 20*time.Millisecond); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	for _, want := range []string{"why J4?  key_held", "J2 blocked -> ", "the job wrote: J2 ran at", "all as expected"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, out.String())
		}
	}
}
