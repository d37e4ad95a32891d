package order_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/siding-dev/siding/internal/db/dbtest"
	"github.com/siding-dev/siding/internal/definition"
)

// contextOf is for what a test does at its end too.
func contextOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// The key that an order gets in the database is the one that definition.Key
// foretells.
func TestKeysInSQLAndGoAgree(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		template := drawTemplate(rt)
		args := json.RawMessage(drawObject(rt, 2))
		want, wantErr := definition.Key(template, args)

		var got *string
		if err := d.Pool.QueryRow(t.Context(), d.SQL(`SELECT siding.key_from($1, $2::jsonb)`), template, string(args)).Scan(&got); err != nil {
			rt.Fatalf("%s of %s: %v", template, args, err)
		}
		var failed *definition.KeyError
		switch {
		case errors.As(wantErr, &failed) && failed.Code == definition.CodeKeyRequired:
			if got != nil && *got != "" {
				rt.Fatalf("%s of %s: %q, in Go: %v", template, args, *got, wantErr)
			}
		case wantErr != nil:
			// Too long; add_orders checks the length of what key_from gives.
			if got == nil || len(*got) <= definition.MaxKeyBytes {
				rt.Fatalf("%s of %s: %v, in Go: %v", template, args, got, wantErr)
			}
		case got == nil || *got != want:
			rt.Fatalf("%s of %s: %v, in Go: %q", template, args, got, want)
		}
	})
}

// names of arguments; few, so that templates and arguments meet.
var names = []string{"a", "b", "c-1", "0", "A"}

func drawTemplate(t *rapid.T) string {
	var text strings.Builder
	for range rapid.IntRange(1, 3).Draw(t, "parts") {
		text.WriteString(rapid.SampledFrom([]string{"", "/", "x ü", `\`, "$1"}).Draw(t, "text"))
		path := rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(t, "path")
		text.WriteString("{" + strings.Join(path, ".") + "}")
	}
	return text.String() + rapid.SampledFrom([]string{"", "."}).Draw(t, "end")
}

func drawObject(t *rapid.T, depth int) string {
	var members []string
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		members = append(members, `"`+rapid.SampledFrom(names).Draw(t, "name")+`": `+drawValue(t, depth))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func drawValue(t *rapid.T, depth int) string {
	if depth > 0 {
		switch rapid.IntRange(0, 3).Draw(t, "nested") {
		case 0, 1:
			return drawObject(t, depth-1)
		case 2:
			return "[" + drawValue(t, depth-1) + "]"
		}
	}
	return rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", `""`, `" "`, `"\u00fc\n\""`, `"{a}"`, `"null"`, "-0", "-0.00", "0e-3", "1.50", "0e5"}),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,10})?([eE][+-]?[0-9]{1,2})?`),
		rapid.Map(rapid.StringMatching(`[a-zA-Z0-9ä-ö€\\"/{}. ]{0,200}`), func(s string) string {
			text, _ := json.Marshal(s)
			return string(text)
		}),
	).Draw(t, "value")
}
