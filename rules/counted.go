package rules

import (
	"context"

	"github.com/heed-go/heed/throttle"
)

// Counted counts what Limiter decides in Tally, and tells Alarm of refusals and failures.
// It decides nothing itself. Limiters may share a Tally or an Alarm.
//
// Limiter must be set; no field may change. A refusal of a claim that Waits is not counted:
// the caller goes on waiting for a grant. A wait that fails is counted once.
type Counted struct {
	Limiter throttle.Limiter
	Tally   *Tally // nil: nothing is counted
	Alarm   *Alarm // nil: nobody is told
}

// Reserve implements throttle.Limiter.
func (l *Counted) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := l.Limiter.Reserve(ctx, c)
	switch {
	case err == nil && !final(c, d):
	case err == nil:
		if l.Tally != nil {
			l.Tally.Decided(c, d)
		}
		if l.Alarm != nil {
			l.Alarm.Decided(c, d)
		}
	case l.Tally != nil:
		l.Tally.Undecided(c)
	}
	return d, err
}

// Cancel implements throttle.Limiter.
func (l *Counted) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	l.Limiter.Cancel(ctx, c, d)
	if l.Tally != nil && d.OK {
		l.Tally.Cancelled(c)
	}
}

// Observe implements throttle.Observer.
func (l *Counted) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, l.Limiter, c, d, f)
	if l.Alarm != nil {
		l.Alarm.Observed(c, d, f)
	}
}

// Local implements throttle.Local: it answers from memory if Limiter does.
func (l *Counted) Local() bool {
	x, ok := l.Limiter.(throttle.Local)
	return ok && x.Local()
}
