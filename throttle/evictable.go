package throttle

import (
	"context"
	"time"
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
