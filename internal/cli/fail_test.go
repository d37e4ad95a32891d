package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/db"
	"github.com/siding-dev/siding/internal/definition"
)

func TestFail(t *testing.T) {
	t.Parallel()
	_, first := definition.Parse("a.yaml", []byte("kind: queue\nname: Q1\ncapacity: 0\n"))
	_, second := definition.Parse("b.yaml", []byte("kind: qeue\nname: Q1\n"))
	for name, c := range map[string]struct {
		err  error
		code int
		want string
	}{
		"anything":  {errors.New("no luck"), ExitFailed, "error: no luck\n"},
		"wrong use": {fmt.Errorf("run: %w", Usage(errors.New("--x is missing"))), ExitFailed, "error: run: --x is missing\nSee controller x --help\n"},
		"quiet":     {fmt.Errorf("x: %w", Quiet(ExitNo)), ExitNo, ""},
		"refused by a controller": {
			fmt.Errorf("POST /orders: %w", &client.Problem{Code: "key_required", Status: 422, Title: "A key is required", Detail: "workflow w needs a key", Hint: "Give one."}),
			ExitNo, "error: workflow w needs a key\nhint:  Give one.\ncode:  key_required\n",
		},
		"several problems": {
			&client.Problem{Code: "invalid_request", Status: 422, Title: "The request is not valid", Detail: "query.limit: too big", Errors: []client.ProblemItem{
				{Path: "query.limit", Message: "too big"}, {Message: "no body", Hint: "send one"},
			}},
			ExitNo, "error: The request is not valid\n  query.limit: too big\n  no body (send one)\ncode:  invalid_request\n",
		},
		"broken inside": {
			&client.Problem{Code: "internal", Status: 500, Title: "Something went wrong inside", RequestID: "r1"},
			ExitFailed, "error: Something went wrong inside\n  request r1 in the controller's log\ncode:  internal\n",
		},
		"refused by the database": {
			fmt.Errorf("create token: %w", db.Refuse("token_exists", 409, "there is a token x")),
			ExitNo, "error: there is a token x\ncode:  token_exists\n",
		},
		"definitions of several files": {
			errors.Join(first, second), ExitNo, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if code := Fail(&out, "controller x", c.err); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			got := out.String()
			if name == "definitions of several files" {
				if !strings.Contains(got, "  a.yaml:3:11: capacity") || !strings.Contains(got, "  b.yaml:1:7: kind") {
					t.Errorf("a problem is missing:\n%s", got)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDetail(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                              "",
		"{}":                            "",
		`{"b_c":1,"a":"x","d":[1,"2"]}`: `a x, b c 1, d [1,"2"]`,
		`7`:                             "7",
	} {
		if got := detail([]byte(in)); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}
