package queue

import (
	"cmp"
	"slices"

	"github.com/heed-go/heed/throttle"
)

// boundOf returns one more than the units that may wait for the limit that made d, a
// refusal; 0 if it has no queue bound. throttle.LeakyBucket, Nginx and TickQueue have one.
func boundOf(d throttle.Decision) int64 {
	if units, ok := d.QueueBound(); ok {
		return units + 1
	}
	return 0
}

// setBound notes the queue bound that d, a refusal by the limit of g, carries. Waiters
// beyond it, which came before it was known, are refused, the newest first. It reports
// whether s is one of them.
func (q *Queue) setBound(lq *limitQueue, d throttle.Decision, w *waiter) (refused bool) {
	prev := lq.bound
	if lq.bound = boundOf(d); lq.bound == prev || !lq.overBound() {
		return false
	}
	var waiting []*waiter
	for _, c := range q.classes {
		for i := range c.entries[:c.numEntries] {
			if c.entries[i].limitQueue == lq {
				waiting = append(waiting, c.waiters.Items...)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *waiter) int { return cmp.Compare(b.ticket.arrival, a.ticket.arrival) })
	for _, x := range waiting {
		if lq.overBound() && x.isWaiting() {
			refused = refused || x == w
			q.reject(x, &throttle.RefusedError{Key: lq.key.key, Decision: d})
		}
	}
	return refused
}

// overBound reports whether more units wait for g than its limit allows.
func (lq *limitQueue) overBound() bool { return lq.bound > 0 && lq.waitingUnits > lq.bound-1 }

// checkBounds returns an error if s, which has just joined, is more than a limit lets wait.
func (q *Queue) checkBounds(w *waiter) error {
	for i := range w.class.entries[:w.class.numEntries] {
		if lq := w.class.entries[i].limitQueue; lq.overBound() {
			return q.refusedError(lq, nil)
		}
	}
	return nil
}

// addWaitingUnits adds the units of t, times sign, to what waits at its gates.
func (q *Queue) addWaitingUnits(t *Ticket, sign int64) {
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			if lq := q.limitQueues[limitKeyOf(m, k)]; lq != nil {
				lq.waitingUnits += sign * max(m.Cost, 1)
			}
		}
	}
}
