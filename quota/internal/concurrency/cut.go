package concurrency

import (
	"time"

	"github.com/heed-go/heed/quota/internal/inflight"
)

// A Cut limits the requests in flight after a bare rejection that is not evidence of a
// limit, until cutEndsAfter responses in a row are successful. The zero Cut does not
// limit them.
type Cut struct {
	Until       time.Time // no claim is granted before
	MaxInFlight int64     // requests in flight, and no more than have ever succeeded; 0: not bounded
	successes   int       // successes since the latest bare rejection
}

const (
	minInFlight  = 4 // least Cut.maxInFlight
	cutEndsAfter = 8 // successes in a row, after which the cut ends
)

// Begin begins a cut after a bare rejection that is not evidence: half of inFlight requests may be in flight,
// at least minInFlight. Rejections within the round trip of a cut are of the same burst.
func (c *Cut) Begin(inFlight float64, roundTrip time.Duration, now time.Time) {
	c.successes = 0
	if !now.Before(c.Until) {
		c.Until, c.MaxInFlight = now.Add(roundTrip), max(minInFlight, int64(min(inFlight/2, inflight.Max)))
	}
}

// Succeeded counts a successful response during the cut.
func (c *Cut) Succeeded() {
	if c.successes++; c.successes >= cutEndsAfter {
		*c = Cut{}
	}
}
