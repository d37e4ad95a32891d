package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/siding-dev/siding/internal/definition"
)

// taking is a workflow that takes locks one inside the other.
func taking(name string, locks ...string) string {
	steps := "[{job: j, noop: true}]"
	for i := len(locks) - 1; i >= 0; i-- {
		steps = "[{lock: {" + locks[i] + ": 1}, steps: " + steps + "}]"
	}
	return "kind: workflow\nname: " + name + "\nordering: independent\ndefaults: {agent: a1}\nsteps: " + steps + "\n"
}

func TestLockCycles(t *testing.T) {
	t.Parallel()
	const locks = "kind: lock\nname: L3\ncapacity: 1\n"
	live := `{"workflow":"ab"}`
	for name, tt := range map[string]struct {
		before []string // applied in turn
		orders string   // added before the last of them
		text   string
		cycle  string // what the refusal names; "": applied
	}{
		"one way":                     {[]string{taking("ab", "L1", "L2")}, "", taking("x", "L1", "L2"), ""},
		"the other way":               {[]string{taking("ab", "L1", "L2")}, "", taking("x", "L2", "L1"), "L1 -> L2"},
		"both in one call":            {nil, "", taking("ab", "L1", "L2") + "---\n" + taking("x", "L2", "L1"), "L1 -> L2"},
		"over three":                  {[]string{taking("ab", "L1", "L2"), taking("bc", "L2", "L3")}, "", taking("x", "L3", "L1"), "L1 -> L2 -> L3"},
		"in name order":               {[]string{taking("ab", "L1", "L2")}, "", taking("x", "L2: 1, L1"), ""},
		"name order the other way":    {[]string{taking("ba", "L2", "L1")}, "", taking("x", "L2: 1, L1"), "L1 -> L2"},
		"replaced":                    {[]string{taking("ab", "L1", "L2")}, "", taking("ab", "L2", "L1"), ""},
		"replaced with live orders":   {[]string{taking("ab", "L1", "L2"), ""}, live, taking("ab", "L2", "L1"), "L1 -> L2"},
		"an old version that is over": {[]string{taking("ab", "L1", "L2"), taking("ab", "L1")}, "", taking("x", "L2", "L1"), ""},
		"an old version with orders":  {[]string{taking("ab", "L1", "L2"), taking("ab", "L1")}, live, taking("x", "L2", "L1"), "L1 -> L2"},
		"allowed":                     {[]string{taking("ab", "L1", "L2")}, "", taking("x", "L2", "L1") + "allow_cycle: true\n", ""},
		"beside an allowed one":       {[]string{taking("ab", "L1", "L2") + "allow_cycle: true\n"}, "", taking("x", "L2", "L1"), ""},
		"without steps between":       {[]string{taking("ab", "L1", "L2")}, "", "kind: workflow\nname: x\nordering: independent\ndefaults: {agent: a1}\nsteps: [{lock: {L2: 1}, steps: [{job: j, noop: true}]}, {lock: {L1: 1}, steps: [{job: k, noop: true}]}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.apply(locks)
			for i, text := range tt.before {
				if i > 0 && i == len(tt.before)-1 && tt.orders != "" {
					r.add(tt.orders)
				}
				if text != "" {
					r.apply(text)
				}
			}
			_, err := r.try(tt.text)
			var problems *definition.Errors
			switch {
			case tt.cycle == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.cycle != "" && !errors.As(err, &problems):
				t.Errorf("%v, want a refusal", err)
			case tt.cycle != "":
				p := problems.Problems[0]
				if p.Code != definition.CodeLockCycle || !strings.HasSuffix(p.Message, ": "+tt.cycle) || p.Path != "steps" || p.Line == 0 {
					t.Errorf("problem %+v, want the cycle %s", p, tt.cycle)
				}
			}
		})
	}
}

// An order that ends sets its version free.
func TestLockCycleUntilTheOrdersEnd(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.apply(taking("ab", "L1", "L2"))
	ids := r.add(`{"workflow":"ab"}`)
	r.apply(taking("ab", "L1"))
	if got := r.refused(taking("x", "L2", "L1")); !strings.HasSuffix(got, " steps lock_cycle") {
		t.Errorf("with a live order: %s", got)
	}
	r.cancel(ids...)
	if got := r.apply(taking("x", "L2", "L1")); got != "workflow x created 1 v1" {
		t.Errorf("after its end: %s", got)
	}
	// A removed workflow doesn't count either.
	if code := r.remove(definition.KindWorkflow, "x"); code != "" {
		t.Fatalf("remove x: %s", code)
	}
	if got := r.apply(taking("ab", "L1", "L2")); got != "workflow ab changed 3 v3" {
		t.Errorf("after the removal: %s", got)
	}
}
