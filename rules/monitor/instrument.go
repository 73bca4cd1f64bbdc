package monitor

import (
	"context"

	"github.com/heed-go/heed/throttle"
)

// Instrument is a limiter that passes claims to Limiter, counts the decisions in Stats, and
// reports rejections and failures to Alert. Several Instruments may share a Stats or an Alert.
//
// Limiter must be set; fields must not be changed after the first claim. A rejection of a claim
// with Claim.Waits set is not counted, because the caller waits for a grant. A wait that fails is
// counted once.
type Instrument struct {
	// Limiter decides the claims. It must be set.
	Limiter throttle.Limiter

	// Stats counts the decisions of Limiter. Nil means no counts.
	Stats *Stats

	// Alert receives rejections and failures. Nil means no alerts.
	Alert *Alert
}

// Reserve implements throttle.Limiter.
func (l *Instrument) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if l.Limiter == nil {
		panic("monitor: Instrument: Limiter is nil: set it")
	}
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

// Report implements throttle.Limiter.
func (l *Instrument) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	l.Limiter.Report(ctx, c, d, f)
	if f.State == throttle.Unused {
		if l.Stats != nil && d.OK {
			l.Stats.Cancelled(c)
		}
		return
	}
	if l.Alert != nil {
		l.Alert.Observed(c, d, f)
	}
}

// Traits implements throttle.Limiter. It counts rejections, so that a wait that fails is counted.
func (l *Instrument) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.CountsRejected = true
	return t
}
