package throttle

import (
	"context"
	"time"
)

// An Evictable is a Limiter that can report whether its state equals that of a new
// limiter, so that replacing it with a new one changes no decision. A keyed.Limiter asks
// before it evicts a limiter.
//
// For limiters that do not implement Evictable, IsEvictable uses a dry run: the limiter is
// evictable if all units are available and none are being restored. That is sufficient for
// a limiter with a single limit. A limiter that is composed of several must implement
// Evictable and ask all of them.
type Evictable interface {
	Evictable(now time.Time) bool
}

// IsEvictable reports whether the state of l for key at the instant now is that of a new
// limiter. If it is not, recheckAfter is the time after which to ask again. IsEvictable
// asks l if l is an Evictable; otherwise it uses a dry run.
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

// evictionRecheck is the time after which to ask again if the limiter does not state one.
const evictionRecheck = time.Second

func allEvictable(now time.Time, ls ...Limiter) bool {
	for _, l := range ls {
		if evictable, _ := IsEvictable(l, "", now); !evictable {
			return false
		}
	}
	return true
}
