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

// lock takes the lock and reads the clock.
func (w *Waiter) lock() {
	w.mu.Lock()
	w.now = w.time.read(time.Time{})
	w.at = w.now
}

// unlock does what is due and sets the alarm.
func (w *Waiter) unlock() {
	w.serve()
	for w.Clock != nil && w.next() <= w.now { // another clock may need to be moved to fire
		w.serve()
	}
	w.alarm.set(w, w.next())
	w.mu.Unlock()
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
	if w.deadlines.len() > 0 {
		next = min(next, w.deadlines.first().at)
	}
	return next
}

// serve refuses the waiters whose deadline has come, and asks at every gate that is due, in the order in which they opened.
//
// Timers fire late. Claims are therefore made as of the instant at which the gate
// opened, one after another, so that a line moves at the full rate of its limit.
// After a long stall, as of a suspended process, no more than maxLate is caught up.
//
// The lock is released while limiters are asked. What becomes due meanwhile is left to
// others, or to the alarm, so that no goroutine serves without end.
func (w *Waiter) serve() {
	w.expire()
	for now := w.now; w.due.len() > 0 && w.due.first().opens <= now; {
		g := w.due.first()
		w.at = max(g.opens, w.now-w.maxLate)
		if g.known {
			g.broken++ // until it proves true
		}
		if p := g.first(); p.line.parked == p {
			w.ask(p.line)
		} else {
			w.schedule(g, never, false) // p keeps it closed while it waits elsewhere
		}
	}
	w.at = w.now
}

// ask asks for the first of l. It is called, or l waits for the limit that
// refused it.
func (w *Waiter) ask(l *line) {
	s := l.queue.first()
	if l.asking != nil {
		w.waitForAnswer(l)
		return
	}
	for i := range l.places[:l.n] {
		// Others who go first wait here already: to ask would take their units.
		if p := &l.places[i]; p.holdsUp() {
			l.holdUntil = 0
			w.park(l, p)
			return
		}
	}
	w.question(s)
}

// granted takes s, which got its units, out of its line.
func (w *Waiter) granted(s *seat) {
	l, t := s.line, s.ticket
	l.trust(nil)
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range m.limits() {
			w.charge(l.placeAt(m.gateKey(k)), m.Cost, int64(t.Weight))
		}
	}
	w.pull(s)
}

// refused parks the line of s at the limit that refused it as its demand i.
func (w *Waiter) refused(s *seat, i int, d Decision) {
	l, m := s.line, &s.ticket.Demands[i]
	opens, known := w.opening(d)
	if err := w.hopeless(s, m.Key, d, opens, known); err != nil {
		w.refuse(s, err)
		return
	}
	p := l.placeAt(m.gateKey(int(d.part)))
	w.estimates(l, d.Estimated)
	w.refusals++
	p.gate.refusal = w.refusals
	l.trust(p)
	if p.gate.broken > promises {
		opens = max(opens, addSat(w.now, pace))
	}
	if *p.gate.policy != d.Policy {
		p.gate.policy = &d.Policy
	}
	if w.learnBound(p.gate, d, s) {
		return
	}
	w.patient(l, p, opens)
	if w.park(l, p); p.gate.first() == p {
		w.schedule(p.gate, opens, known)
	}
	if d.Told && known && opens-p.gate.told > int64(time.Second) { // checking all waiters costs O(n)
		p.gate.told = opens
		w.warn(p.gate, d, opens)
	}
}

// warn sends everybody home who must pass g and for whom it makes no sense to wait
// until it opens: they need not be first to be told.
func (w *Waiter) warn(g *gate, d Decision, opens int64) {
	var gone []*seat
	for _, l := range w.lines {
		for i := range l.places[:l.n] {
			if l.places[i].gate == g {
				gone = append(gone, l.queue.members...)
			}
		}
	}
	for _, s := range gone {
		if s == s.line.asking {
			continue
		}
		if err := w.hopeless(s, g.key.key, d, opens, true); err != nil {
			w.refuse(s, err)
		}
	}
}

// patient decides whether l, whose first was refused at p, keeps its places at the
// other limits meanwhile, closed to those who come after it.
//
// A ticket that needs two busy limits would never find both open: while it waits
// for one, others take the other. To be fair to them it keeps its places only if
// it was sent from one limit to the next, if it costs them less than what was
// waited before or this was tried already, and for no longer than Patience.
func (w *Waiter) patient(l *line, p *place, opens int64) {
	wait := opens - w.now
	again := l.parked == p && !l.newHead         // asked again because of news
	if l.parked != nil && !again && !l.newHead { // where the waiter before it was refused says nothing of this one
		l.bounces++
	}
	l.newHead = false
	switch {
	case l.holdUntil != 0 && opens > l.holdUntil:
		l.holdUntil, l.bounces = 0, 0
	case l.holdUntil == 0 && !again && wait <= w.patience && (l.bounces > 1 || l.bounces == 1 && wait <= l.lastWait):
		l.holdUntil = addSat(w.now, w.patience)
	}
	l.lastWait = wait
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
	case opens > w.maxWaitEnd(s):
		return &RefusedError{Key: key, Decision: d}
	case s.ends != never && opens > w.now && opens-w.now >= s.ends-w.real():
		return &RefusedError{Key: key, Decision: d, Reason: context.DeadlineExceeded}
	case d.Told && s.ticket.MaxTold > 0 && opens-w.now > int64(s.ticket.MaxTold):
		return &RefusedError{Key: key, Decision: d}
	}
	return nil
}

// real returns now on the real clock, on which contexts end.
func (w *Waiter) real() int64 { return w.realAt(w.now) }

func (w *Waiter) realAt(now int64) int64 {
	if w.Clock == nil {
		return now
	}
	return int64(time.Since(w.born))
}

// foresee refuses s if its limits say already that it cannot be granted in time. What
// others in line take is left out, as they may go away. What all claims of s have in
// common is in c. It is called without the lock.
func (w *Waiter) foresee(s *seat, c Claim) {
	for i := range s.ticket.Demands {
		m := &s.ticket.Demands[i]
		if m.Limiter == nil || !isLocal(m.Limiter) {
			continue
		}
		c.Key, c.Cost, c.DryRun = m.Key, m.Cost, true
		d, err := m.Limiter.Reserve(context.Background(), c)
		if err == nil && d.OK {
			continue
		}
		w.lock()
		waits := s.waits()
		if waits && err == nil {
			if g := w.gates[m.gateKey(int(d.part))]; g != nil && d.queue > 0 {
				waits = !w.learnBound(g, d, s)
			}
		}
		if waits && err == nil {
			opens, known := w.opening(d)
			err = w.hopeless(s, m.Key, d, opens, known)
		}
		if waits && err != nil {
			w.refuse(s, err)
		}
		w.unlock()
		if !waits || err != nil {
			return
		}
	}
}

// waits reports whether s is in its line and not asked for at the moment.
func (s *seat) waits() bool { return s.line.asking != s && s.ticket.held == nil }
