package throttleredis

import (
	"context"

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
	d, err := t.guardedCaller.Reserve(ctx, c)
	if err != nil || !d.OK || c.DryRun {
		return d, err
	}
	shared, _ := t.share.Reserve(ctx, c) // a rejection of the share is ignored
	return t.subGrants.Wrap(d, []throttle.Decision{d, shared}), nil
}

// Report implements throttle.Limiter.
func (t *mirroredLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	t.subGrants.Unwrap(d, f.State, func(parts []throttle.Decision) {
		t.share.Report(ctx, c, parts[1], f)
		t.guardedCaller.Report(ctx, c, parts[0], f)
	})
}

// Traits implements throttle.Limiter.
func (t *mirroredLimiter) Traits() throttle.Traits {
	redis, share := t.guardedCaller.Traits(), t.share.Traits()
	redis.EndsAtResponse = redis.EndsAtResponse && share.EndsAtResponse
	redis.CountsRejected = redis.CountsRejected || share.CountsRejected
	return redis
}
