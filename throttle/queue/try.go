package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Try is like Wait, but does not wait. It returns nil if all demands of t are granted now, and
// a *throttle.RejectedError if one of them is not, or if other callers wait for its limits.
// Other errors are those of Wait. A limiter that may block is asked with ctx. After an error
// t holds no units.
func (q *Queue) Try(ctx context.Context, t *Ticket) error {
	now, asked, err := q.tryNow(ctx, t, false)
	switch {
	case err != nil || t.grant != nil:
	case q.numWaiting.Load() >= closedBit:
		err = ErrClosed
	default:
		err = findRejection(ctx, t, q.time.At(now))
		if !asked { // the claims of t without Claim.Waits have not been counted
			q.countRejection(ctx, t, err)
		}
	}
	q.finish(ctx, t, err)
	return err
}

// findRejection returns the rejection of the first demand of t that is rejected. It takes no units.
func findRejection(ctx context.Context, t *Ticket, now time.Time) error {
	e := &throttle.RejectedError{Decision: throttle.Decision{At: now}}
	for i := range t.Demands {
		m := &t.Demands[i]
		if m.Limiter == nil {
			continue
		}
		d, err := m.Limiter.Reserve(ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, Now: now, DryRun: true})
		if err != nil {
			return err
		}
		if e.Key, e.Decision.Policy = m.Key, d.Policy; !d.OK {
			e.Decision = d
			break
		}
	}
	return e
}
