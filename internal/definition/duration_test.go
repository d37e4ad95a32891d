package definition

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	cases := []struct {
		text string
		want time.Duration
		norm string // "" if the text is refused
	}{
		{"15m", 15 * time.Minute, "15m"},
		{"15m0s", 15 * time.Minute, "15m"},
		{"24h", day, "24h"},
		{"2s", 2 * time.Second, "2s"},
		{"0s", 0, "0s"},
		{"0", 0, "0s"},
		{"1d", day, "24h"},
		{"1d12h", day + 12*time.Hour, "36h"},
		{"1h0m5s", time.Hour + 5*time.Second, "1h5s"},
		{"10h10m", 10*time.Hour + 10*time.Minute, "10h10m"},
		{"90s", 90 * time.Second, "1m30s"},
		{"20m30s", 20*time.Minute + 30*time.Second, "20m30s"},
		{"1.5h", 90 * time.Minute, "1h30m"},
		{"250ms", 250 * time.Millisecond, "250ms"},
		{"1h0.5s", time.Hour + 500*time.Millisecond, "1h0.5s"},
		{"36500d", 36500 * day, "876000h"},
		{"", 0, ""},
		{"10", 0, ""},
		{"-5m", 0, ""},
		{"1d-5m", 0, ""},
		{"1d1d", 0, ""},
		{"1.5d", 0, ""},
		{"5m1d", 0, ""},
		{"soon", 0, ""},
		{"1 h", 0, ""},
		{"36501d", 0, ""},
		{"36500d1s", 0, ""},
		{"36500d2000000h", 0, ""},
		{"99999999999999999999d", 0, ""},
		{"2562047h", 0, ""},
	}
	for _, c := range cases {
		got, err := ParseDuration(c.text)
		if (err == nil) != (c.norm != "") {
			t.Errorf("ParseDuration(%q) error %v, want success %v", c.text, err, c.norm != "")
			continue
		}
		if err == nil && (got.Std() != c.want || got.String() != c.norm) {
			t.Errorf("ParseDuration(%q) = %v, printed %q, want %v, %q", c.text, got.Std(), got, c.want, c.norm)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		count := rapid.Int64Range(0, int64(MaxDuration.Std()/unit)).Draw(t, "count")
		want := Duration(time.Duration(count) * unit)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Duration
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%s read back as %v (%v), want %v", text, got.Std(), err, want.Std())
		}
	})
}

func TestDurationRefusesOtherJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`5`, `"-1s"`, `"x"`, `{}`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s was read as %v", text, d)
		}
	}
}
