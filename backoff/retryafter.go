package backoff

import (
	"cmp"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// RetryAfterJitter adds jitter to a wait that a server asked for (Retry-After).
//
// The result is never shorter than that wait: an earlier retry is rejected again, and many
// servers count it against the client. A random delay is added, because many clients received the same
// wait. Its range doubles with each attempt, because a server that rejects a client again has
// more clients than it can serve:
//
//	       retryAfter      retryAfter+w         retryAfter+2w
//	───────────+────────────────+────────────────────+──▶ time
//	1st attempt [═══════════════)
//	2nd attempt [════════════════════════════════════)
//
// with w = max(Min, Spread·retryAfter), and a range of at most Max. The zero RetryAfterJitter
// waits between 1 s and 1.5 s if the server asked for 1 s, and between 60 s and 66 s if it
// asked for 60 s.
type RetryAfterJitter struct {
	// Min replaces shorter waits, including zero and negative ones, and is the minimum of
	// the range w. Zero and negative values mean 500 ms.
	Min time.Duration

	// Max is the maximum range of the random delay. Zero and negative values mean
	// 30 s.
	Max time.Duration

	// Spread is the range after the first attempt, as a fraction of the wait that the server
	// asked for. Zero means 0.1. A negative value means 0, so that Min alone is the range.
	Spread float64

	// Rand returns a uniform random number in [0, 1). It must be safe for concurrent use.
	// Nil means math/rand/v2.
	Rand func() float64
}

// Delay returns the wait after attempt, counted from 1, if the server asked for retryAfter. It
// is never shorter than retryAfter, and saturates at the maximum duration.
func (f RetryAfterJitter) Delay(retryAfter time.Duration, attempt int) time.Duration {
	shortest, spread := cmp.Or(max(f.Min, 0), defaultBase), f.Spread
	if spread == 0 {
		spread = 0.1
	}
	retryAfter = max(retryAfter, shortest)
	w := shortest
	if spread > 0 {
		w = max(w, scale(retryAfter, spread))
	}
	extra := random(uint64(double(w, cmp.Or(max(f.Max, 0), defaultMax), attempt)), f.Rand)
	return time.Duration(ticks.Add(int64(retryAfter), int64(extra)))
}
