package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Try is like Wait, but does not wait. It returns nil if all demands of t are granted now, and
// a *throttle.RefusedError if one of them is not, or if other callers wait for its limits.
// Other errors are those of Wait. A limiter that may block is asked with ctx. After an error
// t holds no units.
func (q *Queue) Try(ctx context.Context, t *Ticket) error {
	if q.Trace != nil {
		q.Trace.started(t)
	}
	err := q.try(ctx, t)
	if err != nil || q.Trace != nil {
		q.finish(t, err)
	}
	return err
}

func (q *Queue) try(ctx context.Context, t *Ticket) error {
	if err := q.check(ctx, t); err != nil {
		return err
	}
	if q.numWaiting.Load() >= closedBit {
		return ErrClosed
	}
	now := q.time.Read(time.Time{})
	t.grant, t.waited, t.longestWait = nil, 0, nil
	if q.numWaiting.Load() == 0 || q.canBypass(t) {
		if err := q.reserveNow(ctx, t, now); err != nil || t.grant != nil {
			return err
		}
		t.waited = 0
		q.wakeLimits(t) // other tickets may have been rejected while t held units for a moment
	}
	err := findRefusal(ctx, t, q.time.At(now))
	if _, refused := err.(*throttle.RefusedError); refused {
		q.countRefusal(ctx, t)
	}
	return err
}

// findRefusal returns the rejection of the first demand of t that is rejected. It takes no units.
func findRefusal(ctx context.Context, t *Ticket, now time.Time) error {
	e := &throttle.RefusedError{Decision: throttle.Decision{At: now}}
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
