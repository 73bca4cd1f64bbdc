package throttle

import (
	"context"
	"time"
)

// An Idler can say whether it is as it was made, so that nobody would notice if a
// new one took its place. Keyed asks before it forgets a limiter.
//
// Of limiters that are no Idlers it takes the word of a dry run: all of a limit is
// there, and nothing has to come back. That is enough for whatever has one limit.
// What is made of several must ask all of them.
type Idler interface {
	Idle(now time.Time) bool
}

// isIdle reports whether l is as it was made, and if it is not, when to look again.
func isIdle(l Limiter, key string, now time.Time) (is bool, again time.Duration) {
	if i, ok := l.(Idler); ok {
		return i.Idle(now), lookAgain
	}
	d, err := l.Reserve(context.Background(), Claim{Key: key, Now: now, DryRun: true})
	switch {
	case err != nil:
		return false, lookAgain
	case d.ResetAfter > 0:
		return false, max(d.At.Add(d.ResetAfter).Sub(now), 1)
	}
	return d.OK && d.Limit > 0 && d.Remaining == d.Limit, lookAgain
}

// lookAgain is when to look again at what cannot say how long it will be busy.
const lookAgain = time.Second

func allIdle(now time.Time, ls ...Limiter) bool {
	for _, l := range ls {
		if is, _ := isIdle(l, "", now); !is {
			return false
		}
	}
	return true
}

// Idle implements Idler.
func (a *allOf) Idle(now time.Time) bool { return allIdle(now, a.ls...) }

// Idle implements Idler.
func (f *Fallback) Idle(now time.Time) bool { return allIdle(now, f.Primary, f.Secondary) }

// Idle implements Idler.
func (s *Soft) Idle(now time.Time) bool { return allIdle(now, s.Limit, s.Hard) }

// Idle implements Idler.
func (e *Elastic) Idle(now time.Time) bool { return allIdle(now, e.Limiter) }

// Idle implements Idler.
func (s *Shadow) Idle(now time.Time) bool { return allIdle(now, s.Limiter) }

// adaptiveMemory is how long an Adaptive that is not used keeps what it has learned.
const adaptiveMemory = 10 * time.Minute

// Idle implements Idler. What l has learned counts as outdated when no claim was granted
// for ten minutes and no RetryAfter is left.
func (l *Adaptive) Idle(now time.Time) bool {
	at := l.time.read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return subSat(at, max(l.last, l.looked, l.tat)) >= int64(adaptiveMemory)
}

// Idle implements Idler.
func (l *AcceptRatio) Idle(now time.Time) bool {
	at := l.time.read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent(at) == answers{}
}

// Idle implements Idler: all ticks that were taken have passed.
func (q *TickQueue) Idle(now time.Time) bool {
	at := q.time.read(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.booked <= q.tickAt(max(at, q.last))
}

// Idle implements Idler.
func (fixed) Idle(time.Time) bool { return true }
