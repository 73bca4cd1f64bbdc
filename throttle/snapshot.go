package throttle

import (
	"context"
	"time"
)

// A Line is what a Waiter shows of one of its lines: the callers of one tenant who
// must pass the same limits.
type Line struct {
	Demands    [MaxDemands]Demand // of the first in line
	Tenant     string             // Ticket.Tenant
	Waiting    int                // callers in line
	First      time.Duration      // how long the first has been in line
	Limit      string             // name of the limit that the line waits for; "": it is just being asked
	Key        string             // Claim.Key there
	OpensAfter time.Duration      // until the first is let through, if nothing changes; 0: unknown, or it is behind another line
	Behind     bool               // another line goes first there
}

// Snapshot returns all lines, in no order.
func (w *Waiter) Snapshot() []Line {
	if w.crowd.Load() == 0 {
		return nil
	}
	w.lock()
	lines := make([]Line, 0, len(w.lines))
	for _, l := range w.lines {
		lines = append(lines, w.describe(l))
	}
	w.unlock()
	return lines
}

func (w *Waiter) describe(l *line) Line {
	first := l.queue.first().ticket
	d := Line{
		Demands: first.Demands,
		Tenant:  l.key.tenant,
		Waiting: l.queue.len(),
		First:   time.Duration(w.now) - first.waited,
	}
	if p := l.parked; p != nil {
		d.Limit, d.Key, d.Behind = *p.gate.policy, p.gate.key.key, p.gate.first() != p
		if p.gate.known && !d.Behind {
			d.OpensAfter = time.Duration(max(p.gate.opens-w.now, 0))
		}
	}
	return d
}

// A WaitTrace is told what happens to the tickets of a Waiter. Each of its funcs
// is called by the goroutine that waits, without a lock; nil funcs are left out.
type WaitTrace struct {
	Asked   func(*Ticket)        // Wait was called
	Parked  func(*Ticket, Line)  // it has to wait: Line.Limit says for what, Line.Waiting is its place in line
	Granted func(*Ticket)        // Wait returns nil; Waited and WaitedFor say what it took
	Refused func(*Ticket, error) // Wait returns an error
}

func (w *Waiter) traced(ctx context.Context, t *Ticket) error {
	if w.Trace.Asked != nil {
		w.Trace.Asked(t)
	}
	err := w.await(ctx, t)
	switch {
	case err != nil && w.Trace.Refused != nil:
		w.Trace.Refused(t, err)
	case err == nil && w.Trace.Granted != nil:
		w.Trace.Granted(t)
	}
	return err
}
