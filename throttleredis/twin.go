package throttleredis

import (
	"context"

	"github.com/heed-go/heed/throttle"
)

// A twin takes from a share in memory what a limit on Redis grants, as far as it is there,
// and gives it back when Redis gets it back. So when Redis goes, the share of a process that
// was busy is as empty as it would be had there never been a Redis.
//
// To let the share rest until it is needed looks right, and lets each outage begin with a
// burst, however short the pauses between outages are: see
// TestFallback_outageAddsAtMostABurstEachWay.
type twin struct {
	*gate
	share  throttle.Limiter
	trails throttle.Trails
}

// Reserve implements throttle.Limiter.
func (t *twin) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := t.gate.Reserve(ctx, c)
	if err != nil || !d.OK || c.DryRun {
		return d, err
	}
	shared, _ := t.share.Reserve(ctx, c) // its refusal changes nothing
	return t.trails.Mark(d, []throttle.Decision{d, shared}), nil
}

// Cancel implements throttle.Limiter.
func (t *twin) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	t.trails.Follow(d, false, func(parts []throttle.Decision) {
		t.share.Cancel(ctx, c, parts[1])
		t.gate.Cancel(ctx, c, parts[0])
	})
}

// Observe implements throttle.Observer.
func (t *twin) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	t.trails.Follow(d, f.More, func(parts []throttle.Decision) {
		throttle.Observe(ctx, t.share, c, parts[1], f)
		t.gate.Observe(ctx, c, parts[0], f)
	})
}
