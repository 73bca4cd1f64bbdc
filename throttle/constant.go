package throttle

import (
	"context"
	"time"
)

// AllowAll grants everything. It reads no clock: its Decision.At is Claim.Now.
var AllowAll Limiter = constantLimiter{Decision{OK: true, Policy: "unlimited"}}

// DenyAll refuses everything, for ever. It reads no clock: its Decision.At is
// Claim.Now.
var DenyAll Limiter = constantLimiter{Decision{Wait: Forever, Policy: "blocked"}}

// constantLimiter is a limiter that always decides the same.
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

// Cancel implements Limiter: there is nothing to give back.
func (constantLimiter) Cancel(context.Context, Claim, Decision) {}

// Local implements Local.
func (constantLimiter) NonBlocking() bool { return true }

// Idle implements Idler.
func (constantLimiter) Evictable(time.Time) bool { return true }
