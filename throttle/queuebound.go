package throttle

import (
	"cmp"
	"math"
	"slices"
)

// A queue bound is how many units may wait for a limit: LeakyBucket, Nginx and TickQueue
// have one. A refusal of a claim that Waits carries it in Decision.queue, so that it
// passes through limiters that wrap others, and the Waiter keeps to it.

// boundedBy returns d, a refusal of c, with the bound of n waiting units.
func boundedBy(d Decision, c Claim, n int64) Decision {
	if c.Waits && !d.OK && n < math.MaxInt64 {
		d.queue = max(n, 0) + 1
	}
	return d
}

// learnBound notes the queue bound that d, a refusal by the limit of g, carries. Waiters
// beyond it, which came before it was known, are refused, the newest first. It reports
// whether s is one of them.
func (w *Waiter) learnBound(g *gate, d Decision, s *seat) (refused bool) {
	known := g.bound
	if g.bound = d.queue; g.bound == known || !g.full() {
		return false
	}
	var waiting []*seat
	for _, l := range w.lines {
		for i := range l.places[:l.n] {
			if l.places[i].gate == g {
				waiting = append(waiting, l.queue.members...)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *seat) int { return cmp.Compare(b.ticket.turn, a.ticket.turn) })
	for _, x := range waiting {
		if g.full() && x.waits() {
			refused = refused || x == s
			w.refuse(x, &RefusedError{Key: g.key.key, Decision: d})
		}
	}
	return refused
}

// full reports whether more units wait for g than its limit allows.
func (g *gate) full() bool { return g.bound > 0 && g.waiting > g.bound-1 }

// noRoom returns an error if s, which has just joined, is more than a limit lets wait.
func (w *Waiter) noRoom(s *seat) error {
	for i := range s.line.places[:s.line.n] {
		if g := s.line.places[i].gate; g.full() {
			return w.refusedBy(g, nil)
		}
	}
	return nil
}

// countWaiting adds the units of t, times sign, to what waits at its gates.
func (w *Waiter) countWaiting(t *Ticket, sign int64) {
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range m.limits() {
			if g := w.gates[m.gateKey(k)]; g != nil {
				g.waiting += sign * max(m.Cost, 1)
			}
		}
	}
}
