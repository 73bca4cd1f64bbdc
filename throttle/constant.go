package throttle

import (
	"context"
	"time"
)

// AllowAll grants every claim. It reads no clock: its Decision.At is Claim.Now.
var AllowAll Limiter = constantLimiter{Decision{OK: true, Policy: "unlimited"}}

// DenyAll rejects every claim with a Wait of Forever. It reads no clock: its Decision.At
// is Claim.Now.
var DenyAll Limiter = constantLimiter{Decision{Wait: Forever, Policy: "blocked"}}

// constantLimiter is a limiter that always returns the same decision.
type constantLimiter struct{ decision Decision }

// Reserve implements Limiter.
func (f constantLimiter) Reserve(_ context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	d := f.decision
	d.At = c.Now
	return d, nil
}

// Cancel implements Limiter. It does nothing.
func (constantLimiter) Cancel(context.Context, Claim, Decision) {}

// NonBlocking is the method that IsNonBlocking calls.
func (constantLimiter) NonBlocking() bool { return true }

// Evictable is the method that IsEvictable calls.
func (constantLimiter) Evictable(time.Time) bool { return true }
