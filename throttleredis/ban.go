package throttleredis

import (
	"cmp"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Ban returns a limiter that behaves like keyed.NewBan around AllOf(limits...), for all
// processes together and in one round trip. If there is one limit and it books ahead, so
// does the returned limiter. MaxKeys is ignored, because keys without rejections expire.
// Ban panics if v or s is invalid, or if AllOf would panic.
func (s *Store) Ban(v keyed.BanConfig, limits ...*Limiter) throttle.Limiter {
	v.Name = cmp.Or(v.Name, "ban")
	longest := max(v.MaxDuration, v.Duration)
	quiet := cmp.Or(v.ForgetAfter, max(v.Within, longest))
	p, scope := newAllOf(limits...), ""
	for _, l := range limits {
		scope += l.keySuffix
	}
	ban := s.limiter(limit{
		algorithm:        "ban",
		err:              v.Validate(),
		name:             v.Name,
		policy:           v.Name,
		scope:            scope,
		countsRejections: true,
		args:             floats(int64(v.Rejections), ceilMicros(v.Within), ceilMicros(v.Duration), ceilMicros(longest), ceilMicros(quiet)),
	})
	return &banned{newAllOf(append(p.limits, ban)...), p, v}
}

// ceilMicros returns d in microseconds, rounded up, but at most maxWindow.
func ceilMicros(d time.Duration) int64 { return min(micros(wholeMicros(d)), maxWindow) }

// A banned limiter is the AllOf of its limits and a ban, which is the last of them.
type banned struct {
	*allOf
	inner  *allOf
	config keyed.BanConfig
}

// withBan returns the decision about a claim whose key is banned for left. d is the
// decision of the other limits. The wait is the longer one of both.
func (l *limit) withBan(d throttle.Decision, left time.Duration) throttle.Decision {
	if d.OK {
		d.Wait = 0
	}
	if left > d.Wait {
		d.Wait, d.Policy = left, l.policy
	}
	d.OK, d.Remaining = false, 0
	d.ResetAfter = max(d.ResetAfter, left)
	return d
}

// Share returns the shares of the limits as Limiter.Share does. Each process counts
// rejections and bans keys on its own.
func (p *banned) Share(processes, maxKeys int) throttle.Limiter {
	v := p.config
	v.MaxKeys = maxKeys
	return throttle.WithClock(keyed.NewBan(p.inner.Share(processes, maxKeys), v), p.store.Clock)
}
