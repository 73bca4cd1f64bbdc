package throttle

import (
	"context"
	"errors"
	"time"
)

// A Local limiter can say that it answers from memory: its methods return immediately
// and do not look at ctx. A Waiter asks such limiters for a caller from whatever
// goroutine brings the news, without a lock. A panic of the limiter reaches the caller
// that it was asked for.
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

// An answer is what the limits of a ticket answered: it was granted, or its demand i was
// refused, or there was an error.
type answer struct {
	i       int
	refusal Decision
	err     error
	ended   error // why the question was ended before its answer; nil: it was not
}

// A panicError is a panic of a limiter, on its way to the caller it was asked for.
type panicError struct{ value any }

func (*panicError) Error() string { return "throttle: a limiter panicked" }

var (
	errExited     = errors.New("throttle: a limiter ended its goroutine")
	errGaveUp     = errors.New("throttle: the context of the caller has ended")
	errOverstayed = errors.New("throttle: the wait is over")
)

// question begins to ask for s, the first of its line. Until there is an answer the line
// stays where it is, and s can neither be granted nor refused by others.
func (w *Waiter) question(s *seat) {
	l := s.line
	l.asking, l.asOf, l.news, l.asked = s, w.at, l.heard(), w.refusals
	w.waitForAnswer(l)
	if l.local {
		w.mu.Unlock()
		a := w.askHere(s)
		w.lock()
		w.conclude(s, a)
		return
	}
	w.unlimitStay(s)
	s.call()
}

// askHere asks limits that answer from memory, in the goroutine that brings news.
func (w *Waiter) askHere(s *seat) (a answer) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			a.err = &panicError{v}
			return
		}
		w.lock() // runtime.Goexit: what called askHere does not go on
		w.conclude(s, answer{err: errExited})
		w.unlock()
	}()
	c := w.claim(s.ticket, s.line.asOf)
	a.i, a.err = s.ticket.reserve(context.Background(), c, &a.refusal)
	returned = true
	return a
}

// claim returns what the claims of t have in common.
func (w *Waiter) claim(t *Ticket, now int64) Claim {
	return Claim{Now: w.time.at(now), Waits: true, Waited: max(time.Duration(now)-t.waited, 0)}
}

// conclude does what an answer from memory says. It is called with the lock.
func (w *Waiter) conclude(s *seat, a answer) {
	l := s.line
	if a.err == nil && s.ticket.held == nil && l.gaveUp {
		a.err = errGaveUp
	}
	l.gaveUp = false
	if done, err := w.answered(s, a); err != nil {
		s.fail(err)
	} else if done {
		s.call()
	}
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

// resume asks for the first of l again, whichever that is now.
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

// askFar asks for s in the goroutine of its caller, and does what the answer says. It
// reports false if s has to wait on.
func (w *Waiter) askFar(ctx context.Context, s *seat) (done bool, err error) {
	a := w.inquire(ctx, s)
	granted := s.ticket.held != nil
	if granted && a.ended != nil {
		s.ticket.Cancel(ctx, w.time.at(w.time.read(time.Time{})))
		granted = false
	}
	w.lock()
	done, err = w.answered(s, a)
	w.unlock()
	if done && ctx.Err() != nil {
		w.Cancel(ctx, s.ticket)
		err = context.Cause(ctx)
	}
	return done, err
}

// answered does what an answer for s says. It reports true if s has left its line, with
// a grant or with err. It is called with the lock.
func (w *Waiter) answered(s *seat, a answer) (done bool, err error) {
	l, t := s.line, s.ticket
	w.at = max(l.asOf, w.now-w.maxLate)
	l.asking = nil
	if err = a.err; a.ended != nil || err == nil && t.held == nil {
		if end := w.mustLeave(s, a); end != nil {
			err = end
		}
	}
	switch {
	case err != nil:
		w.gaveBack(s, -1)
		w.pull(s)
		w.resume(l)
		return true, err
	case t.held != nil:
		w.granted(s)
		w.resume(l)
		return true, nil
	default:
		if s.stay < 0 {
			w.limitStay(s)
		}
		first, heard := l.queue.first() == s, l.heard() != l.news
		w.gaveBack(s, a.i)
		if first && !heard {
			w.refused(s, a.i, a.refusal)
		} else {
			w.resume(l)
		}
	}
	return false, nil
}

// gaveBack looks again at the limits that may have granted their part of s before its
// demand i was refused, and have it back: what they gave for a moment may have been
// refused to others.
func (w *Waiter) gaveBack(s *seat, i int) {
	for j := range s.ticket.Demands {
		if j == i {
			continue
		}
		m := &s.ticket.Demands[j]
		for k := range m.limits() {
			g := w.gates[m.gateKey(k)]
			switch {
			case g == nil:
			case g.refusal > s.line.asked:
				w.ring(g)
			default:
				g.news++ // for questions under way
			}
		}
	}
}

// inquire asks for s in the goroutine of its caller. If a limiter panics, s leaves the
// line, as its caller does: else nothing behind it would ever be asked for again.
func (w *Waiter) inquire(ctx context.Context, s *seat) (a answer) {
	returned := false
	defer func() {
		if !returned {
			w.lock()
			s.line.asking = nil
			w.gaveBack(s, -1)
			w.pull(s)
			w.resume(s.line)
			w.unlock()
		}
	}()
	now, left := w.time.read(time.Time{}), int64(never)
	if end := min(w.maxWaitEnd(s), latencyEnd(s, now, w.realAt(now))); end != never {
		left = subSat(end, now)
	}
	asking, stop := w.bounded(ctx, left)
	defer stop()
	a.i, a.err = s.ticket.reserve(asking, w.claim(s.ticket, s.line.asOf), &a.refusal)
	if asking.Err() != nil && ctx.Err() == nil {
		a.ended = context.Cause(asking)
	}
	returned = true
	return a
}

// bounded returns a context that ends with ctx, when w is closed, or after left.
func (w *Waiter) bounded(ctx context.Context, left int64) (bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	closing := context.AfterFunc(w.closing, func() { cancel(ErrClosed) })
	if left == never {
		return bounded, func() { closing(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Duration(left), func() { cancel(errOverstayed) })
	return bounded, func() { closing(); timer.Stop(); cancel(nil) }
}

// mustLeave returns an error if s must leave its line now, as a refused it or its
// question was ended.
func (w *Waiter) mustLeave(s *seat, a answer) error {
	if w.closed || a.ended == ErrClosed {
		return ErrClosed
	}
	over, reason := w.expired(s)
	switch {
	case a.ended != nil && a.refusal == (Decision{}):
		return w.tooLong(s, reason)
	case over || a.ended != nil:
		return &RefusedError{Key: s.ticket.Demands[a.i].Key, Decision: a.refusal, Reason: reason}
	}
	return nil
}
