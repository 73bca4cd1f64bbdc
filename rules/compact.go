package rules

import (
	"context"
	"sync"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// lazyBuckets is the limiter of keyed.NewBuckets that is created by the first claim. Its table has its
// full size from the beginning, and a file may contain many limits that are never used.
type lazyBuckets struct {
	config  keyed.BucketsConfig
	clock   throttle.Clock
	once    sync.Once
	limiter throttle.Limiter // nil before the first claim
}

// maxKeys is the maximum value of max_keys. At 35 bytes per key such a table takes 560 MiB.
const maxKeys = 1 << 24

func (c *lazyBuckets) get() throttle.Limiter {
	c.once.Do(func() { c.limiter = throttle.WithClock(keyed.NewBuckets(c.config), c.clock) })
	return c.limiter
}

// Reserve implements throttle.Limiter.
func (c *lazyBuckets) Reserve(ctx context.Context, claim throttle.Claim) (throttle.Decision, error) {
	return c.get().Reserve(ctx, claim)
}

// Report implements throttle.Limiter.
func (c *lazyBuckets) Report(ctx context.Context, claim throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	c.get().Report(ctx, claim, d, f)
}

// Traits implements throttle.Limiter.
func (c *lazyBuckets) Traits() throttle.Traits { return c.get().Traits() }
