package throttleredis

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A mirroredLimiter takes the units that a limit on Redis grants from a share in memory as
// well, as far as the share has them, and returns them to the share when they are returned
// to Redis. When Redis fails, the share of a busy process is therefore as empty as if the
// process had never used Redis.
//
// If the share were left full until it is needed, each outage would begin with a burst, no
// matter how short the time between outages is: see
// TestFallback_outageAddsAtMostABurstEachWay.
type mirroredLimiter struct {
	*guardedCaller
	share     throttle.Limiter
	subGrants throttle.SubGrants
}

// Reserve implements throttle.Limiter.
func (t *mirroredLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return t.ReserveAhead(ctx, c, 0)
}

// ReserveAhead implements throttle.Booker.
func (t *mirroredLimiter) ReserveAhead(ctx context.Context, c throttle.Claim, maxWait time.Duration) (throttle.Decision, error) {
	d, err := t.guardedCaller.ReserveAhead(ctx, c, maxWait)
	if err != nil || !d.OK || c.DryRun {
		return d, err
	}
	shared, _ := throttle.ReserveAhead(ctx, t.share, c, maxWait) // a rejection of the share is ignored
	return t.subGrants.Wrap(d, []throttle.Decision{d, shared}), nil
}

// Cancel implements throttle.Limiter.
func (t *mirroredLimiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	t.subGrants.Unwrap(d, false, func(parts []throttle.Decision) {
		t.share.Cancel(ctx, c, parts[1])
		t.guardedCaller.Cancel(ctx, c, parts[0])
	})
}

// Observe implements throttle.Observer.
func (t *mirroredLimiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	t.subGrants.Unwrap(d, f.Partial, func(parts []throttle.Decision) {
		throttle.Observe(ctx, t.share, c, parts[1], f)
		t.guardedCaller.Observe(ctx, c, parts[0], f)
	})
}
