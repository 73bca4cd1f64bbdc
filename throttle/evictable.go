package throttle

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An Evictable can say whether it is as it was made, so that nobody would notice if a
// new one took its place. A keyed.Limiter asks before it forgets a limiter.
//
// Of limiters that are no Idlers it takes the word of a dry run: all of a limit is
// there, and nothing has to come back. That is enough for whatever has one limit.
// What is made of several must ask all of them.
type Evictable interface {
	Evictable(now time.Time) bool
}

// IsEvictable reports whether the state of l for key is that of a new limiter at the instant
// now. If it is not, recheckAfter is the time after which to ask again. It asks l itself if
// that is an Evictable, and otherwise by a dry run.
func IsEvictable(l Limiter, key string, now time.Time) (evictable bool, recheckAfter time.Duration) {
	if i, ok := l.(Evictable); ok {
		return i.Evictable(now), evictionRecheck
	}
	d, err := l.Reserve(context.Background(), Claim{Key: key, Now: now, DryRun: true})
	switch {
	case err != nil:
		return false, evictionRecheck
	case d.ResetAfter > 0:
		return false, max(d.At.Add(d.ResetAfter).Sub(now), 1)
	}
	return d.OK && d.Limit > 0 && d.Remaining == d.Limit, evictionRecheck
}

// evictionRecheck is when to look again at what cannot say how long it will be busy.
const evictionRecheck = time.Second

func allEvictable(now time.Time, ls ...Limiter) bool {
	for _, l := range ls {
		if evictable, _ := IsEvictable(l, "", now); !evictable {
			return false
		}
	}
	return true
}

// Idle implements Idler.
func (a *allOf) Evictable(now time.Time) bool { return allEvictable(now, a.limiters...) }

// Idle implements Idler.
func (f *Fallback) Evictable(now time.Time) bool { return allEvictable(now, f.Primary, f.Secondary) }

// Idle implements Idler.
func (s *SoftLimit) Evictable(now time.Time) bool { return allEvictable(now, s.Soft, s.Hard) }

// Idle implements Idler.
func (e *Borrowing) Evictable(now time.Time) bool { return allEvictable(now, e.Limiter) }

// Idle implements Idler.
func (s *Shadow) Evictable(now time.Time) bool { return allEvictable(now, s.Limiter) }

// adaptiveRetention is how long an Adaptive that is not used keeps what it has learned.
const adaptiveRetention = 10 * time.Minute

// Idle implements Idler. What l has learned counts as outdated when no claim was granted
// for ten minutes and no RetryAfter is left.
func (l *Adaptive) Evictable(now time.Time) bool {
	at := l.time.Read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return ticks.Sub(at, max(l.last, l.lastClimb, l.tat)) >= int64(adaptiveRetention)
}

// Idle implements Idler.
func (l *AdmissionControl) Evictable(now time.Time) bool {
	at := l.time.Read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent(at) == requestCounts{}
}

// Idle implements Idler: all ticks that were taken have passed.
func (q *TickQueue) Evictable(now time.Time) bool {
	at := q.time.Read(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastBooked <= q.tickAt(max(at, q.last))
}

// Idle implements Idler.
func (constantLimiter) Evictable(time.Time) bool { return true }
