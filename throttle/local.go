package throttle

import "context"

// A Local limiter can say that it answers from memory: its methods return at once
// and do not look at ctx. A Waiter asks such limiters itself while it holds its
// lock, so they must neither call the Waiter nor panic.
//
// All other limiters are asked by the caller who waits, with its ctx, one question
// per line at a time, and hold up nobody else. It is therefore always safe not to
// be Local, and only somewhat slower. What wraps limiters is Local if they are.
type Local interface {
	Local() bool
}

func isLocal(l Limiter) bool {
	x, ok := l.(Local)
	return ok && x.Local()
}

// isLocal reports whether all limiters of t are.
func (t *Ticket) isLocal() bool {
	for i := range t.Demands {
		if l := t.Demands[i].Limiter; l != nil && !isLocal(l) {
			return false
		}
	}
	return true
}

// question lets the caller at s ask for itself. Until it has, the line stays where
// it is, and s can neither be granted nor refused by others.
func (w *Waiter) question(s *seat) {
	l := s.line
	l.asking, l.asOf, l.news = s, w.at, l.heard()
	w.unlimitStay(s)
	w.waitForAnswer(l)
	s.call()
}

// heard counts the news of the gates of l. An answer is out of date if there was
// some since the question.
func (l *line) heard() (n uint64) {
	for i := range l.places[:l.n] {
		n += l.places[i].gate.news
	}
	return n
}

// waitForAnswer leaves alone the gate at which l is parked.
func (w *Waiter) waitForAnswer(l *line) {
	if p := l.parked; p != nil && p.gate.first() == p {
		w.schedule(p.gate, never, false)
	}
}

// resume asks for the first of l again, whoever that is now.
func (w *Waiter) resume(l *line) {
	if l.queue.len() == 0 {
		return
	}
	if l.parked == nil {
		w.park(l, &l.places[0])
	}
	if p := l.parked; p.gate.first() == p {
		w.schedule(p.gate, w.at, false)
	}
}

// answer asks for s, and does what the answer says. It reports false if s has to
// wait on.
func (w *Waiter) answer(ctx context.Context, s *seat) (done bool, err error) {
	l, t := s.line, s.ticket
	i, refusal, err := w.inquire(ctx, s)
	granted := t.held != nil
	w.lock()
	w.at = max(l.asOf, w.now-w.maxLate)
	l.asking = nil
	if err == nil && !granted {
		err = w.sendHome(s, i, refusal)
	}
	switch {
	case err != nil:
		w.depart(s)
	case granted:
		w.granted(s)
		w.resume(l)
	default:
		w.limitStay(s)
		first, heard := l.queue.first() == s, l.heard() != l.news
		w.gaveBack(t, i)
		if first && !heard {
			w.refused(s, i, refusal)
		} else {
			w.resume(l)
		}
	}
	w.unlock()
	if err == nil && !granted {
		return false, nil
	}
	if ctx.Err() != nil {
		w.Cancel(ctx, t)
		err = context.Cause(ctx)
	}
	return true, err
}

// gaveBack looks again at the limits that had granted their part of t before demand i
// was refused: what they gave for a moment may have been refused to others.
func (w *Waiter) gaveBack(t *Ticket, i int) {
	for j := range t.Demands {
		if g := w.gateOf(&t.Demands[j]); g != nil && j != i {
			w.ring(g)
		}
	}
}

// inquire asks for s. If a limiter panics, s leaves the line, as its caller does:
// else nobody behind it would ever be asked for again.
func (w *Waiter) inquire(ctx context.Context, s *seat) (i int, refusal Decision, err error) {
	answered := false
	defer func() {
		if !answered {
			w.lock()
			s.line.asking = nil
			w.depart(s)
			w.unlock()
		}
	}()
	i, err = s.ticket.reserve(ctx, w.time.at(s.line.asOf), &refusal)
	answered = true
	return i, refusal, err
}

// depart takes s, which had a question, out of its line and asks for the next.
func (w *Waiter) depart(s *seat) {
	l := s.line
	w.pull(s)
	w.resume(l)
}

// sendHome returns an error if s must leave its line now that d refused its demand i.
func (w *Waiter) sendHome(s *seat, i int, d Decision) error {
	if w.closed {
		return ErrClosed
	}
	if over, reason := w.expired(s); over {
		return &RefusedError{Key: s.ticket.Demands[i].Key, Decision: d, Reason: reason}
	}
	return nil
}
