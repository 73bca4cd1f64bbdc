package queue

import (
	"cmp"
	"slices"

	"github.com/heed-go/heed/throttle"
)

// setBound sets the queue bound of lq to that of the rejection d. Waiters that joined before
// the bound was known and exceed it are rejected, the newest first; one whose limiters are being
// asked is checked when they have rejected it. setBound reports whether w is one of those that
// were rejected.
func (q *Queue) setBound(lq *limitQueue, d throttle.Decision, w *waiter) (rejected bool) {
	prev := lq.bound
	if lq.bound = d.QueueBound; lq.bound == prev || !lq.overBound() {
		return false
	}
	waiting := q.waitersOf(lq)
	slices.SortFunc(waiting, func(a, b *waiter) int { return cmp.Compare(b.ticket.arrival, a.ticket.arrival) })
	for _, x := range waiting {
		switch {
		case !lq.overBound():
		case x.isWaiting():
			rejected = rejected || x == w
			q.reject(x, &throttle.RejectedError{Key: lq.key.key, Decision: d})
		default: // its limiters are being asked: it may not have to wait
			x.class.checksBounds = true
		}
	}
	return rejected
}

func (lq *limitQueue) overBound() bool { return lq.bound != 0 && lq.waitingUnits > max(lq.bound, 0) }

// checkBounds returns an error if w, which has just joined, exceeds a queue bound.
func (q *Queue) checkBounds(w *waiter) error {
	for i := range w.class.entries {
		if lq := w.class.entries[i].limitQueue; lq.overBound() {
			return q.rejectedError(lq, nil)
		}
	}
	return nil
}

// addWaiting adds sign to the number of waiters of the limits of w, and the units of w times
// sign to their waitingUnits.
func (w *waiter) addWaiting(sign int64) {
	for i := range w.class.entries {
		e := &w.class.entries[i]
		e.limitQueue.waiting += int(sign)
		e.limitQueue.waitingUnits += sign * e.units(w.ticket)
	}
}
