package throttleredis

import (
	"context"

	"github.com/heed-go/heed/throttle"
)

// A mirroredLimiter takes from a share in memory what a limit on Redis grants, as far as it is there,
// and gives it back when Redis gets it back. So when Redis goes, the share of a process that
// was busy is as empty as it would be had there never been a Redis.
//
// To let the share rest until it is needed looks right, and lets each outage begin with a
// burst, however short the pauses between outages are: see
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
	shared, _ := t.share.Reserve(ctx, c) // its refusal changes nothing
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
