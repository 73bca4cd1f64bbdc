package rules

import (
	"context"
	"sync"

	"github.com/heed-go/heed/throttle"
)

// compact is a throttle.KeyedBuckets that is made when it is first asked: the table
// has its full size from the beginning, and a file may have many limits that nobody
// ever comes to.
type compact struct {
	buckets throttle.Buckets
	clock   throttle.Clock
	once    sync.Once
	keys    *throttle.KeyedBuckets // nil: nobody has asked yet
}

// maxKeys is how many keys a limit may have: 27 bytes each are 430 MiB.
const maxKeys = 1 << 24

func (c *compact) made() *throttle.KeyedBuckets {
	c.once.Do(func() { c.keys = throttle.NewKeyedBuckets(c.buckets, c.clock) })
	return c.keys
}

// Reserve implements throttle.Limiter.
func (c *compact) Reserve(ctx context.Context, claim throttle.Claim) (throttle.Decision, error) {
	return c.made().Reserve(ctx, claim)
}

// Cancel implements throttle.Limiter.
func (c *compact) Cancel(ctx context.Context, claim throttle.Claim, d throttle.Decision) {
	c.made().Cancel(ctx, claim, d)
}

// Observe implements throttle.Observer.
func (c *compact) Observe(ctx context.Context, claim throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	c.made().Observe(ctx, claim, d, f)
}

// Local implements throttle.Local.
func (*compact) Local() bool { return true }
