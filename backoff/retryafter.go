package backoff

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// RetryAfterJitter makes a wait that a server asked for into one that a client should keep.
//
// Never earlier: a retry before the time said is refused again, and many servers
// count it. Not exactly then either, because everybody was told the same time. So
// the draw goes upwards only, and its range doubles with each attempt, since a
// server that sends us away again has more clients than it can take:
//
//	         said             said+w               said+2w
//	───────────+────────────────+────────────────────+──▶ time
//	1st attempt [═══════════════)
//	2nd attempt [════════════════════════════════════)
//
// with w = max(Least, Spread·said), and never wider than Max. The zero Floor waits
// between 1 s and 1.5 s for a server that said 1 s, and between 60 s and 66 s for
// one that said 60 s.
type RetryAfterJitter struct {
	Min    time.Duration  // what a shorter time said counts as, also 0 and one that has passed; 0 or below: DefaultBase
	Max    time.Duration  // widest range of the draw; 0 or below: DefaultMax
	Spread float64        // range of the first draw, as a fraction of what was said, below 0 is none; 0: 0.1
	Rand   func() float64 // uniform in [0, 1), safe for concurrent use; nil: math/rand/v2
}

// Delay returns the wait after attempt, counted from 1, when the server asked for
// said. It is never below said; a sum that does not fit saturates.
func (f RetryAfterJitter) Delay(retryAfter time.Duration, attempt int) time.Duration {
	shortest, spread := orDefault(f.Min, DefaultBase), f.Spread
	if spread == 0 {
		spread = 0.1
	}
	retryAfter = max(retryAfter, shortest)
	w := shortest
	if spread > 0 {
		w = max(w, scale(retryAfter, spread))
	}
	extra := random(uint64(double(w, orDefault(f.Max, DefaultMax), attempt)), f.Rand)
	return time.Duration(ticks.Add(int64(retryAfter), int64(extra)))
}
