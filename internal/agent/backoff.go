package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the pause between repeated calls: it doubles from first to max,
// and each pause is drawn from its upper half so that agents that lost the
// same controller don't come back in step.
type backoff struct {
	first, max time.Duration
	failures   int
}

func newBackoff() *backoff {
	return &backoff{first: 50 * time.Millisecond, max: 10 * time.Second}
}

func (b *backoff) reset() { b.failures = 0 }

// next counts a failure and says how long to pause after it.
func (b *backoff) next() time.Duration {
	pause := b.max
	if shift := min(b.failures, 30); b.first<<shift > 0 {
		pause = min(b.max, b.first<<shift)
	}
	b.failures++
	return pause/2 + rand.N(pause/2+1)
}

// pause waits for the next pause, or until ctx ends, which is false.
func (b *backoff) pause(ctx context.Context) bool {
	return sleep(ctx, b.next())
}

// sleep waits for d; it is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
