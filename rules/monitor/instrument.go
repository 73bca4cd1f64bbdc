package monitor

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Instrument is a limiter that passes claims to Limiter, counts the decisions in Stats, and
// reports refusals and failures to Alert. Several Instruments may share a Stats or an Alert.
//
// Limiter must be set; fields must not be changed after the first claim. A rejection of a claim
// with Claim.Waits set is not counted, because the caller waits for a grant. A wait that fails is
// counted once.
type Instrument struct {
	// Limiter decides the claims. It must be set.
	Limiter throttle.Limiter

	// Stats counts the decisions of Limiter. Nil means no counts.
	Stats *Stats

	// Alert receives refusals and failures. Nil means no alerts.
	Alert *Alert
}

// Reserve implements throttle.Limiter.
func (l *Instrument) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return l.ReserveAhead(ctx, c, 0)
}

// ReserveAhead implements throttle.Booker. If Limiter is not one, it is Reserve.
func (l *Instrument) ReserveAhead(ctx context.Context, c throttle.Claim, maxWait time.Duration) (throttle.Decision, error) {
	if l.Limiter == nil {
		panic("monitor: Instrument: Limiter is nil: set it")
	}
	d, err := throttle.ReserveAhead(ctx, l.Limiter, c, maxWait)
	switch {
	case err == nil && (c.DryRun || c.Waits && !d.OK):
	case err == nil:
		if l.Stats != nil {
			l.Stats.Decided(c, d)
		}
		if l.Alert != nil {
			l.Alert.Decided(c, d)
		}
	case l.Stats != nil:
		l.Stats.Undecided(c)
	}
	return d, err
}

// Cancel implements throttle.Limiter.
func (l *Instrument) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	l.Limiter.Cancel(ctx, c, d)
	if l.Stats != nil && d.OK {
		l.Stats.Cancelled(c)
	}
}

// Observe implements throttle.Observer.
func (l *Instrument) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, l.Limiter, c, d, f)
	if l.Alert != nil {
		l.Alert.Observed(c, d, f)
	}
}

// NonBlocking is the method that throttle.IsNonBlocking calls. It is true if Limiter does
// not block.
func (l *Instrument) NonBlocking() bool {
	return throttle.IsNonBlocking(l.Limiter)
}

// HoldsUntilEnd implements throttle.Holder.
func (l *Instrument) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(l.Limiter) }

// CountsRefusals is the method that throttle.CountsRefusals calls. It is true, because Stats and Alert count
// refusals.
func (l *Instrument) CountsRefusals() bool { return true }
