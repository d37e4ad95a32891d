package bench

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseSpec(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		name    string
		options Options
		fails   bool
	}{
		"river":                       {name: "river", options: Options{}},
		"river:":                      {name: "river", options: Options{}},
		"river:workers=5,cooldown=1s": {name: "river", options: Options{"workers": "5", "cooldown": "1s"}},
		"river:a=b=c":                 {name: "river", options: Options{"a": "b=c"}},
		"":                            {fails: true},
		":workers=5":                  {fails: true},
		"river:workers":               {fails: true},
		"river:=5":                    {fails: true},
		"river:workers=5,workers=6":   {fails: true},
	}
	for spec, tc := range cases {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			name, options, err := ParseSpec(spec)
			if (err != nil) != tc.fails {
				t.Fatalf("error is %v, wanted one: %t", err, tc.fails)
			}
			if name != tc.name {
				t.Errorf("name is %q, want %q", name, tc.name)
			}
			if diff := cmp.Diff(tc.options, options); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestArgumentsHaveTheStatedSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{MinArgBytes, 200, 1024, MaxArgBytes} {
		for _, number := range []int{FirstNumber, FirstNumber + 1, FirstNumber + MaxOrders - 1} {
			text, err := json.Marshal(NewArguments(number, size))
			if err != nil {
				t.Fatal(err)
			}
			if len(text) != size {
				t.Errorf("order %d has arguments of %d bytes, want %d", number, len(text), size)
			}
		}
	}
	if NewArguments(FirstNumber, 200).Padding == NewArguments(FirstNumber+1, 200).Padding {
		t.Error("two orders in a row have the same padding")
	}
}

func TestFactsRefuseAServerThatIsNotDurable(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if err := (Facts{{setting, "off"}}).durable(); err == nil {
			t.Errorf("%s off is taken for durable", setting)
		}
		if err := (Facts{{setting, "on"}, {"jit", "off"}}).durable(); err != nil {
			t.Errorf("%s on: %v", setting, err)
		}
	}
}

func TestPerSecondCountsAddingAndWork(t *testing.T) {
	t.Parallel()
	r := Result{Added: 100, Done: 100, Elapsed: 2 * time.Second, AddElapsed: time.Second}
	if got := r.PerSecond(); got != 50 {
		t.Errorf("%v jobs/s, want 50", got)
	}
}
