package throttle

import (
	"context"
	"time"
)

const (
	// recheck is when a limit that does not know when it opens is asked again
	// if there is no news of it.
	recheck = int64(time.Second)

	// A limit that broke so many promises in a row is not asked more often than
	// at this pace.
	promises = 8
	pace     = int64(time.Millisecond)
)

func (w *Waiter) lock() {
	w.mu.Lock()
	w.now = w.time.read(time.Time{})
	w.at = w.now
}

// unlock does what is due, sets the alarm, and lets go those who were called.
func (w *Waiter) unlock() {
	w.serve()
	w.alarm.set(w, w.next())
	called := w.calls.take()
	w.mu.Unlock()
	for s := called; s != nil; {
		next := s.next
		s.next = nil
		s.called <- struct{}{} // from here on s is no longer ours
		s = next
	}
}

// tick is called by the alarm.
func (w *Waiter) tick() {
	w.lock()
	w.alarm.at = never
	w.unlock()
}

// next returns when there is something to do.
func (w *Waiter) next() int64 {
	next := int64(never)
	if w.due.len() > 0 {
		next = w.due.first().opens
	}
	if w.stays.len() > 0 {
		next = min(next, w.leaves(w.stays.first()))
	}
	return next
}

// leaves returns when s has been in line for MaxWait.
func (w *Waiter) leaves(s *seat) int64 {
	if w.MaxWait <= 0 {
		return never
	}
	return addSat(int64(s.ticket.waited), int64(w.MaxWait))
}

// serve asks at every gate that is due, in the order in which they opened.
//
// Timers fire late. Claims are therefore made as of the instant at which the gate
// opened, one after another, so that a line moves at the full rate of its limit.
// After a long stall, as of a suspended process, no more than maxLate is caught up.
func (w *Waiter) serve() {
	for w.stays.len() > 0 && w.leaves(w.stays.first()) <= w.now {
		w.overstayed(w.stays.first())
	}
	for w.due.len() > 0 && w.due.first().opens <= w.now {
		g := w.due.first()
		w.at = max(g.opens, w.now-w.maxLate)
		if g.known {
			g.broken++ // until it proves true
		}
		if p := g.queue.first(); p.line.parked == p {
			w.ask(p.line)
		} else {
			w.schedule(g, never, false)
		}
	}
	w.at = w.now
}

// ask asks for the first of l. It is called, or l waits for the limit that
// refused it.
func (w *Waiter) ask(l *line) {
	s := l.queue.first()
	if p := l.behind(); p != nil {
		w.park(l, p)
		return
	}
	d, i, err := s.ticket.reserve(context.Background(), w.time.at(w.at))
	switch {
	case err != nil:
		w.refuse(s, err)
	case d.OK:
		l.trust(nil)
		w.pull(s)
		w.calls.add(s)
	default:
		w.refused(s, i, d)
	}
}

// behind returns a place at which others who go first wait already; nil if there
// is none. To ask there would take units that they wait for.
func (l *line) behind() *place {
	for i := range l.places[:l.n] {
		p := &l.places[i]
		q := &p.gate.queue
		if q.len() > 0 && q.first() != p && q.order.before(q.first(), p) {
			return p
		}
	}
	return nil
}

// refused parks the line of s at the limit that refused it as its demand i.
func (w *Waiter) refused(s *seat, i int, d Decision) {
	m := &s.ticket.Demands[i]
	opens, known := w.opening(d)
	if err := w.hopeless(s, m.Key, d, opens, known); err != nil {
		w.refuse(s, err)
		return
	}
	p := s.line.placeAt(keyOf(m))
	s.line.trust(p)
	if p.gate.broken > promises {
		opens = max(opens, addSat(w.now, pace))
	}
	if *p.gate.policy != d.Policy {
		p.gate.policy = &d.Policy
	}
	w.park(s.line, p)
	if p.pos == 0 {
		w.schedule(p.gate, opens, known)
	}
}

// trust notes that the limit which l was parked at let it through, unless it is
// the one at p.
func (l *line) trust(p *place) {
	if l.parked != nil && l.parked != p {
		l.parked.gate.broken = 0
	}
}

// opening returns when to ask again after d.
func (w *Waiter) opening(d Decision) (opens int64, known bool) {
	if d.Wait <= 0 {
		return addSat(w.now, recheck), false
	}
	at := w.at
	if !d.At.IsZero() {
		at = w.time.read(d.At)
	}
	return addSat(at, int64(d.Wait)), true
}

// hopeless returns an error if it makes no sense for s to wait.
func (w *Waiter) hopeless(s *seat, key string, d Decision, opens int64, known bool) error {
	switch {
	case d.Wait == Forever:
		return &RefusedError{Key: key, Decision: d}
	case !known:
		return nil
	case opens > w.leaves(s):
		return &RefusedError{Key: key, Decision: d}
	case s.ends != never && opens > w.now && opens-w.now >= s.ends-w.real():
		return &RefusedError{Key: key, Decision: d, Reason: context.DeadlineExceeded}
	}
	return nil
}

// real returns now on the real clock, on which contexts end.
func (w *Waiter) real() int64 {
	if w.Clock == nil {
		return w.now
	}
	return int64(time.Since(w.born))
}

// foresee refuses s if its limits say already that it will wait in vain. What
// others in line take is left out, as they may go away.
func (w *Waiter) foresee(s *seat) {
	for i := range s.ticket.Demands {
		m := &s.ticket.Demands[i]
		if m.Limiter == nil {
			continue
		}
		c := Claim{Key: m.Key, Cost: m.Cost, Now: w.time.at(w.now), DryRun: true}
		d, err := m.Limiter.Reserve(context.Background(), c)
		if err == nil && !d.OK {
			opens, known := w.opening(d)
			err = w.hopeless(s, m.Key, d, opens, known)
		}
		if err != nil {
			w.refuse(s, err)
			return
		}
	}
}

// refuse sends s home with err.
func (w *Waiter) refuse(s *seat, err error) {
	w.pull(s)
	g := grants.Get().(*grant)
	g.err, s.ticket.held = err, g
	w.calls.add(s)
}

// overstayed sends s home as it has been in line for MaxWait.
func (w *Waiter) overstayed(s *seat) {
	e := &RefusedError{}
	if p := s.line.parked; p != nil {
		e.Key, e.Decision.Policy, e.Decision.At = p.gate.key.key, *p.gate.policy, w.time.at(w.now)
		if p.gate.known {
			e.Decision.Wait = time.Duration(max(p.gate.opens-w.now, 0))
		}
	}
	w.refuse(s, e)
}

// placeAt returns the place of l at the gate k.
func (l *line) placeAt(k gateKey) *place {
	for i := range l.places[:l.n] {
		if l.places[i].gate.key == k {
			return &l.places[i]
		}
	}
	panic("throttle: Waiter: the demands of a ticket were changed while it was in line")
}

// park lets l wait at p and nowhere else.
func (w *Waiter) park(l *line, p *place) {
	l.parked = p
	p.enter()
	for i := range l.places[:l.n] {
		if q := &l.places[i]; q != p {
			w.leave(q)
		}
	}
}

// schedule says when to ask at g.
func (w *Waiter) schedule(g *gate, opens int64, known bool) {
	g.opens, g.known = opens, known
	switch {
	case opens < never && g.pos < 0:
		w.due.push(g)
	case opens < never:
		w.due.fix(g.pos)
	case g.pos >= 0:
		w.due.remove(g.pos)
	}
}

// ring asks at g at once, as there is news of it.
func (w *Waiter) ring(g *gate) {
	if g.queue.len() > 0 && g.opens > w.now {
		w.schedule(g, w.now, false)
	}
}

// A callList is who is to be let go once mu is free, in order.
type callList struct{ first, last *seat }

func (c *callList) add(s *seat) {
	if c.first == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
}

func (c *callList) take() *seat {
	s := c.first
	*c = callList{}
	return s
}
