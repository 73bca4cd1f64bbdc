package throttle

import (
	"context"
	"time"
)

// A Waiter blocks callers until the limits of their tickets grant them.
// (First version: polls; to be replaced by the scheduler.)
type Waiter struct {
	Clock    Clock         // nil: the system clock
	MaxWait  time.Duration // longest stay in line; 0: as long as ctx allows
	MaxLine  int           // most callers in line; 0: no bound
	Patience time.Duration // 0: 1 s
	MaxLate  time.Duration // 0: 5 ms
}

// Wait returns when all demands of t are granted.
func (w *Waiter) Wait(ctx context.Context, t *Ticket) error {
	clk := ClockOr(w.Clock)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d, err := t.Reserve(ctx, time.Time{})
		if err != nil || d.OK {
			return err
		}
		if d.Wait == Forever || w.MaxWait > 0 && d.Wait > w.MaxWait {
			return &RefusedError{Decision: d}
		}
		if d.Wait == 0 {
			d.Wait = 10 * time.Millisecond
		}
		select {
		case <-clk.After(d.Wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Cancel gives back a granted ticket that was not used, then looks at the lines again.
func (w *Waiter) Cancel(ctx context.Context, t *Ticket) { t.Cancel(ctx, time.Time{}) }

// Observe tells the limits of t what came of it, then looks at the lines again.
func (w *Waiter) Observe(ctx context.Context, t *Ticket, f Feedback) { t.Observe(ctx, f) }

// Wake looks at the lines again: a limit was changed from elsewhere.
func (w *Waiter) Wake() {}

// Close ends the Waiter.
func (w *Waiter) Close() error { return nil }
