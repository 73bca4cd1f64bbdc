package throttle

import (
	"context"
	"time"
)

// A deadline is the instant at which a waiter leaves its queue without a grant.
type deadline struct {
	at   int64 // on the clock of the Waiter
	seat *seat
}

type byDeadline struct{}

func (byDeadline) before(a, b deadline) bool { return a.at < b.at }
func (byDeadline) moved(d deadline, i int)   { d.seat.stay = int32(i) }

// limitStay makes s leave its queue at the end of MaxWait, when an estimate has held it
// for Ticket.MaxTold, or Ticket.Latency before the deadline of its context. A deadline without a Latency needs no entry, as the
// context itself ends that wait.
func (w *Waiter) limitStay(s *seat) {
	if at := min(w.maxWaitEnd(s), w.latencyEnd(s), s.estimateEnd()); at != never {
		w.deadlines.push(deadline{at, s})
	}
}

// unlimitStay removes what limitStay added.
func (w *Waiter) unlimitStay(s *seat) {
	if s.stay >= 0 {
		w.deadlines.remove(int(s.stay))
	}
}

// maxWaitEnd returns when s has been in its queue for MaxWait.
func (w *Waiter) maxWaitEnd(s *seat) int64 {
	if w.MaxWait <= 0 {
		return never
	}
	return addSat(int64(s.ticket.waited), int64(w.MaxWait))
}

// estimateEnd returns when an estimate has held s for Ticket.MaxTold; never if no
// estimate holds it.
func (s *seat) estimateEnd() int64 {
	if !s.line.estimated || s.ticket.MaxTold <= 0 {
		return never
	}
	return addSat(int64(s.ticket.waited), int64(s.ticket.MaxTold))
}

// estimates notes whether l waits because of an estimate.
func (w *Waiter) estimates(l *line, estimated bool) {
	if l.estimated == estimated {
		return
	}
	l.estimated = estimated
	for i := 0; estimated && i < l.queue.len(); i++ {
		if s := l.queue.members[i]; s != l.asking && s.ticket.MaxTold > 0 {
			w.unlimitStay(s)
			w.limitStay(s)
		}
	}
}

// latencyEnd returns when a grant comes too late for s because of Ticket.Latency.
func (w *Waiter) latencyEnd(s *seat) int64 {
	return latencyEnd(s, w.now, w.real())
}

// latencyEnd returns the same as of now, which is real on the clock of contexts.
func latencyEnd(s *seat, now, real int64) int64 {
	if s.ticket.Latency <= 0 || s.ends == never {
		return never
	}
	return addSat(now, subSat(s.ends, real))
}

// expire refuses the waiters whose deadline has come. If Clock runs faster than the
// clock of contexts, the deadline of a context is later on Clock than it was thought
// to be when s joined: it is then moved.
func (w *Waiter) expire() {
	for w.deadlines.len() > 0 && w.deadlines.first().at <= w.now {
		s := w.deadlines.first().seat
		if s.line.asking == s { // what asks for it looks at its deadline after that
			w.unlimitStay(s)
			continue
		}
		if over, reason := w.expired(s); over {
			w.refuse(s, w.tooLong(s, reason))
			continue
		}
		w.unlimitStay(s)
		w.limitStay(s)
	}
}

// expired reports whether the deadline of s has come, and returns RefusedError.Reason.
func (w *Waiter) expired(s *seat) (over bool, reason error) {
	if w.latencyEnd(s) <= w.now {
		return true, context.DeadlineExceeded
	}
	return min(w.maxWaitEnd(s), s.estimateEnd()) <= w.now, nil
}

// tooLong returns the error for s, which waited too long. It names the limit that s
// waited for.
func (w *Waiter) tooLong(s *seat, reason error) error {
	if p := s.line.parked; p != nil {
		e := w.refusedBy(p.gate, reason)
		e.Decision.Told, e.Decision.Estimated = s.line.estimated, s.line.estimated
		return e
	}
	return &RefusedError{Decision: Decision{At: w.time.at(w.now)}, Reason: reason}
}

// refusedBy returns an error that names the limit of g.
func (w *Waiter) refusedBy(g *gate, reason error) *RefusedError {
	e := &RefusedError{Key: g.key.key, Decision: Decision{At: w.time.at(w.now), Policy: *g.policy}, Reason: reason}
	if g.known {
		e.Decision.Wait = time.Duration(max(g.opens-w.now, 0))
	}
	return e
}
