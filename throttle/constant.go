package throttle

import "context"

// AllowAll grants every claim. It reads no clock: its Decision.At is Claim.Now.
var AllowAll Limiter = constantLimiter{Decision{OK: true, Policy: "unlimited"}}

// DenyAll rejects every claim with a Wait of Forever. It reads no clock, as AllowAll.
var DenyAll Limiter = constantLimiter{Decision{Wait: Forever, Policy: "blocked"}}

type constantLimiter struct{ decision Decision }

func (f constantLimiter) Reserve(_ context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	d := f.decision
	d.At, d.Fresh = c.Now, c.DryRun
	return d, nil
}

func (constantLimiter) Report(context.Context, Claim, Decision, Feedback) {}

func (constantLimiter) Traits() Traits { return Traits{NonBlocking: true, EndsAtResponse: true} }
