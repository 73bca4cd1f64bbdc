package monitor

import (
	"context"

	"github.com/heed-go/heed/throttle"
)

// Instrument counts what Limiter decides in Stats, and tells Alert of refusals and failures.
// It decides nothing itself. Limiters may share a Stats or an Alert.
//
// Limiter must be set; no field may change. A refusal of a claim that Waits is not counted:
// the caller goes on waiting for a grant. A wait that fails is counted once.
type Instrument struct {
	Limiter throttle.Limiter
	Stats   *Stats // nil: nothing is counted
	Alert   *Alert // nil: nobody is told
}

// Reserve implements throttle.Limiter.
func (l *Instrument) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := l.Limiter.Reserve(ctx, c)
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

// NonBlocking implements throttle.NonBlocking: it answers from memory if Limiter does.
func (l *Instrument) NonBlocking() bool {
	x, ok := l.Limiter.(throttle.NonBlocking)
	return ok && x.NonBlocking()
}

// HoldsUntilEnd implements throttle.Holder.
func (l *Instrument) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(l.Limiter) }

// CountsRefusals implements throttle.RefusalCounter: Stats and Alert count them.
func (l *Instrument) CountsRefusals() bool { return true }
