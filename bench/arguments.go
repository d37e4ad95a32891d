package bench

import "strings"

// Arguments are what an order carries in all comparisons. Its JSON has the
// size that [NewArguments] was asked for.
type Arguments struct {
	Number  int    `json:"number"`
	Padding string `json:"padding"`
}

// argumentsOverhead is the length in bytes of the JSON of Arguments with
// Number of 7 digits and no padding.
const argumentsOverhead = len(`{"number":1000000,"padding":""}`)

// NewArguments returns the arguments of the order with that number, size bytes
// of JSON. Numbers start at [FirstNumber], so that all have the same length.
// The size must be from [MinArgBytes] to [MaxArgBytes].
func NewArguments(number, size int) Arguments {
	return Arguments{Number: number, Padding: padding(size-argumentsOverhead, number)}
}

// FirstNumber is the number of the first order of a run. MaxOrders are then
// the orders that a run can have with numbers of 7 digits.
const (
	FirstNumber = 1_000_000
	MaxOrders   = 9_000_000
)

// MinArgBytes and MaxArgBytes bound the sizes that NewArguments can give.
const (
	MinArgBytes = argumentsOverhead
	MaxArgBytes = argumentsOverhead + paddingTextLength
)

const paddingTextLength = 1 << 16

// paddingText is long enough for any window of the largest padding. It doesn't
// repeat within a few kilobytes, so that it compresses no better than text.
var paddingText = makePaddingText(paddingTextLength)

func makePaddingText(length int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -"
	var text strings.Builder
	text.Grow(length)
	// A fixed linear congruential sequence: the same text in every run.
	state := uint64(1)
	for range length {
		state = state*6364136223846793005 + 1442695040888963407
		text.WriteByte(letters[state>>58])
	}
	return text.String()
}

// padding returns a part of paddingText without allocating, another one for
// each number.
func padding(length, number int) string {
	start := (number * 61) % (len(paddingText) - length + 1)
	return paddingText[start : start+length]
}
