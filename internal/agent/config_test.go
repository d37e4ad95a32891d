package agent

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConfigValidation(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{Name: "a1", Processes: 1}, newFake()); err != nil {
		t.Errorf("smallest configuration: %v", err)
	}
	_, err := New(Config{
		Processes: 0, WorkRoot: "w", OutputCapBytes: -1, OutputBufferBytes: 1, Grace: -1, ReportTimeout: -1, CallTimeout: -1,
		ClaimWait: 2 * time.Minute, PassEnv: []string{"A=B", "SIDING_X"}, Unreachable: "pray", Handlers: map[string]Handler{"h": nil},
	}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"name: required", "processes: 0 ", "work root:", "output cap:", "output buffer:", "grace:", "report timeout:", "call timeout:",
		"claim wait: 2m0s", `pass env: "A=B"`, `pass env: "SIDING_X"`, `unreachable: "pray"`, `handlers: "h"`, "controller: required",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestDefaultStateDirNamesTheAgent(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	got, err := DefaultStateDir("a1")
	want := "/state/siding/agents/a1"
	if os.Geteuid() == 0 {
		want = "/var/lib/siding/agents/a1"
	}
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestExpandArgv(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"s":"a b","n":1.0,"t":true,"z":null,"o":{"in":{"x":"deep"},"l":[1, 2]},"e":"","nul":"a\u0000b"}`)
	tests := map[string]struct {
		element, want, err string
	}{
		"text":           {element: "plain", want: "plain"},
		"string":         {element: "x={s}.", want: "x=a b."},
		"number":         {element: "{n}", want: "1.0"},
		"boolean":        {element: "{t}{t}", want: "truetrue"},
		"empty":          {element: "{e}", want: ""},
		"nested":         {element: "{o.in.x}", want: "deep"},
		"object":         {element: "{o.in}", want: `{"x":"deep"}`},
		"list":           {element: "{o.l}", want: `[1,2]`},
		"literal":        {element: "{{s}}", want: "{s}"},
		"other braces":   {element: "{} {{.Names}} { print $1 } ${x", want: "{} {{.Names}} { print $1 } ${x"},
		"missing":        {element: "{o.no}", err: "argv: the order has no argument o.no (for a literal {o.no} write {{o.no}})"},
		"below a string": {element: "{s.x}", err: "argv: the order has no argument s.x (for a literal {s.x} write {{s.x}})"},
		"null":           {element: "{z}", err: "argv: the order's argument z is null (for a literal {z} write {{z}})"},
		"value with NUL": {element: "{nul}", err: "argv: element 0 has a NUL byte"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := expandArgv([]string{test.element}, args)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Fatal(diff)
			}
			if err == nil && got[0] != test.want {
				t.Errorf("got %q, want %q", got[0], test.want)
			}
		})
	}
}

func TestArgVariables(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", maxArgVariableBytes+1)
	tests := map[string]struct {
		args string
		want map[string]string
	}{
		"none":                 {args: ""},
		"not an object":        {args: `[1]`},
		"scalars only":         {args: `{"a":"x","b":-1e3,"c":false,"d":null,"e":{},"f":[]}`, want: map[string]string{"A": "x", "B": "-1e3", "C": "false"}},
		"empty string":         {args: `{"a":""}`, want: map[string]string{"A": ""}},
		"first by name":        {args: `{"b_1":"2","b-1":"1"}`, want: map[string]string{"B_1": "1"}},
		"NUL":                  {args: `{"a":"\u0000"}`, want: map[string]string{}},
		"too big":              {args: `{"a":"` + big + `","b":"1"}`, want: map[string]string{"B": "1"}},
		"other scripts":        {args: `{"größe":"1"}`, want: map[string]string{"GR__E": "1"}},
		"name that is no name": {args: `{"":"1","=":"2"}`, want: map[string]string{"_": "2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, argVariables(json.RawMessage(test.args))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
