package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time that is written as text with units, such as
// "2s", "1h30m" or "1d" (24 hours). It is never negative.
type Duration time.Duration

// Std is the duration as Go's own type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// MaxDuration bounds every duration in a definition, 100 years.
const MaxDuration = Duration(100 * 365 * 24 * time.Hour)

var days = regexp.MustCompile(`^([0-9]+)d`)

// ParseDuration reads a duration: numbers with the units d, h, m, s, ms, us or
// ns, d first and whole. Negative ones and those above MaxDuration are refused.
func ParseDuration(text string) (Duration, error) {
	if strings.HasPrefix(text, "-") {
		return 0, errors.New("a duration can't be negative")
	}
	rest, total := text, time.Duration(0)
	if found := days.FindStringSubmatch(text); found != nil {
		n, err := strconv.Atoi(found[1])
		if err != nil || n > int(MaxDuration.Std()/(24*time.Hour)) {
			return 0, fmt.Errorf("%s is longer than 100 years", quote(text))
		}
		total = time.Duration(n) * 24 * time.Hour
		rest = text[len(found[0]):]
		if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
			return 0, fmt.Errorf("%s is not a duration", quote(text))
		}
	}
	if rest != "" || text == "" {
		part, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("%s is not a duration", quote(text))
		}
		total += part
	}
	// Both summands are below 293 years, so the sum wraps at most once, to a
	// negative value.
	if total < 0 || total > MaxDuration.Std() {
		return 0, fmt.Errorf("%s is longer than 100 years", quote(text))
	}
	return Duration(total), nil
}

// String prints the duration as people write it: "15m", not "15m0s".
// ParseDuration reads it back.
func (d Duration) String() string {
	text := d.Std().String()
	if d.Std() < time.Minute {
		return text
	}
	text = strings.Replace(text, "h0m", "h", 1)
	if strings.HasSuffix(text, "m0s") || strings.HasSuffix(text, "h0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the duration from text.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("a duration must be text such as %q: %w", "15m", err)
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
