package queue

import (
	"context"
)

// A Trace is told what happens to the tickets of a Queue. Each of its funcs
// is called by the goroutine that waits, without a lock; nil funcs are left out.
type Trace struct {
	Started func(*Ticket)        // Wait was called
	Queued  func(*Ticket, Stats) // it has to wait: Stats.Limit says for what, Stats.Waiting is its place in line
	Granted func(*Ticket)        // Wait returns nil; Waited and WaitedFor say what it took
	Failed  func(*Ticket, error) // Wait returns an error
}

func (q *Queue) waitTraced(ctx context.Context, t *Ticket) error {
	if q.Trace.Started != nil {
		q.Trace.Started(t)
	}
	err := q.wait(ctx, t)
	switch {
	case err != nil && q.Trace.Failed != nil:
		q.Trace.Failed(t, err)
	case err == nil && q.Trace.Granted != nil:
		q.Trace.Granted(t)
	}
	return err
}
