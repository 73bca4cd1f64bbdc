package queue

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Trace holds functions that a Queue calls for each ticket, on the goroutine that called Wait
// or Try. Nil functions are not called.
type Trace struct {
	// Queued is called when Wait begins to wait. The ClassSnapshot describes the class of the
	// ticket: Limit is the limit that it waits for, and Waiting includes the ticket.
	Queued func(*Ticket, ClassSnapshot)

	// Granted is called before Wait or Try returns nil. Ticket.Waited and Ticket.WaitedFor describe the wait.
	Granted func(*Ticket)

	// Failed is called before Wait or Try returns an error.
	Failed func(*Ticket, error)
}

// A Position describes a ticket that begins to wait.
type Position struct {
	// At is the time at which the wait began, on Queue.Clock.
	At time.Time

	// Limit is the name of the limit that the ticket waits for. Empty means not yet known.
	Limit string

	// ServerImposed and Estimated are those of the last rejection, see throttle.Decision.
	ServerImposed, Estimated bool

	// Ahead is the number of callers that wait for the limit and go before the ticket, by priority and arrival, of
	// whatever tenant. With more than 256 callers it is an estimate.
	Ahead int

	// ExpectedEnd is when the ticket is expected to be granted: when the limit grants the next claim and, if it states
	// its rate, all units ahead are restored. Zero means that it is not known.
	ExpectedEnd time.Time
}

// maxCompared is the number of waiters that position compares with a new one.
const maxCompared = 256

// announce calls Queued of trace, and queued, if w waits. Both may be nil.
func (q *Queue) announce(w *waiter, trace *Trace, queued func(Position) error) error {
	traced := trace != nil && trace.Queued != nil
	if !traced && queued == nil {
		return nil
	}
	var s ClassSnapshot
	var p Position
	q.lock()
	waiting := w.class.reserving == w || w.ticket.grant == nil
	if waiting && traced {
		s = q.classSnapshot(w.class)
	}
	if waiting && queued != nil {
		p = q.position(w)
	}
	q.unlock()
	if waiting && traced {
		trace.Queued(w.ticket, s)
	}
	if waiting && queued != nil {
		return queued(p)
	}
	return nil
}

// position describes w, which waits. The caller holds the lock.
func (q *Queue) position(w *waiter) Position {
	p := Position{At: q.time.At(int64(w.ticket.waited))}
	e := w.class.blockedAt
	if e == nil {
		p.Ahead = w.class.waiters.Len() - 1
		return p
	}
	lq := e.limitQueue
	p.Limit, p.ServerImposed, p.Estimated = lq.last.name, lq.last.serverImposed, lq.last.estimated
	p.Ahead = lq.ahead(w)
	if lq.retryExact && lq.retryAt != never {
		units := ticks.MulDivDown(lq.waitingUnits, int64(p.Ahead), int64(max(lq.waiting, 1)))
		p.ExpectedEnd = q.time.At(ticks.Add(max(lq.retryAt, q.now), ticks.Mul(units, int64(lq.last.perUnit))))
	}
	return p
}

// ahead returns Position.Ahead of w. Beyond maxCompared it assumes that the part of the waiters
// before w is the same.
func (lq *limitQueue) ahead(w *waiter) int {
	before, compared := 0, 0
	for c := range lq.blocked {
		for _, other := range c.waiters.Items {
			if other == w {
				continue
			}
			if c.waiters.Order.Less(other, w) {
				before++
			}
			if compared++; compared == maxCompared {
				return int(int64(before) * int64(max(lq.waiting-1, compared)) / int64(compared))
			}
		}
	}
	return before
}

// perUnit returns the time in which the limit that made the rejection d restores one unit; 0 if it is not known.
func perUnit(d throttle.Decision) time.Duration {
	if d.Limit <= 0 || d.Per <= 0 {
		return 0
	}
	return d.Per / time.Duration(d.Limit)
}
