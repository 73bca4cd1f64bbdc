package throttle

import (
	"context"
	"time"
)

// Try is Wait without waiting: it returns nil if all demands of t are granted now, and
// a *RefusedError if one of them is not, or if others wait for its limits already. The
// other errors are those of Wait. A limiter that does I/O is asked, bounded by ctx.
// After an error t holds no units.
func (w *Waiter) Try(ctx context.Context, t *Ticket) error {
	if w.Trace != nil && w.Trace.Asked != nil {
		w.Trace.Asked(t)
	}
	err := w.try(ctx, t)
	switch {
	case w.Trace == nil:
	case err != nil && w.Trace.Refused != nil:
		w.Trace.Refused(t, err)
	case err == nil && w.Trace.Granted != nil:
		w.Trace.Granted(t)
	}
	return err
}

func (w *Waiter) try(ctx context.Context, t *Ticket) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.granted() {
		return errHeld
	}
	w.once.Do(w.init)
	if w.invalid != nil {
		return w.invalid
	}
	if w.crowd.Load() >= shut {
		return ErrClosed
	}
	now := w.time.read(time.Time{})
	t.held, t.waited, t.blame = nil, 0, nil
	if w.passes(t) {
		if err := w.pass(ctx, t, now); err != nil || t.held != nil {
			return err
		}
		t.waited = 0
		w.news(t) // what it held for a moment may have been refused to others
	}
	err := refusalOf(ctx, t, w.time.at(now))
	if _, refused := err.(*RefusedError); refused {
		w.countRefusal(ctx, t)
	}
	return err
}

// refusalOf asks which demand of t is refused, and takes nothing.
func refusalOf(ctx context.Context, t *Ticket, now time.Time) error {
	e := &RefusedError{Decision: Decision{At: now}}
	for i := range t.Demands {
		m := &t.Demands[i]
		if m.Limiter == nil {
			continue
		}
		d, err := m.Limiter.Reserve(ctx, Claim{Key: m.Key, Cost: m.Cost, Now: now, DryRun: true})
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
