package throttleredis

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Limiter is one limit in a Store, for each Claim.Key of its own. It is a
// throttle.Limiter and a throttle.Observer, and is not throttle.Local.
//
// Decision.At is Claim.Now, or the local reading at which the answer came: Wait counts
// from it. That the server's clock shows something else does not matter.
type Limiter struct {
	store  *Store
	script *script
	limit  limit
	head   string // of Redis keys, before the tag
	tail   string // and after it
	calls  sync.Pool
	trails throttle.Trails // of grants that a Decision has no room for
}

// limiter returns the limiter of l. It panics if l or s is invalid.
func (s *Store) limiter(l limit) *Limiter {
	if l.err != nil {
		panic(l.err.Error())
	}
	if err := s.Validate(); err != nil {
		panic(err.Error())
	}
	r := &Limiter{store: s, limit: l, script: scriptOf(l.algorithm)}
	r.head, r.tail = s.prefix()+":{", "}:"+idOf(l)
	r.calls.New = func() any { return newCall(r) }
	return r
}

// redisKey returns the Redis key for a claim's key.
func (l *Limiter) redisKey(key string) string { return l.head + tagOf(key) + l.tail }

// Local implements throttle.Local: it does I/O.
func (*Limiter) Local() bool { return false }

// Reserve implements throttle.Limiter. Of the errors, those that match ErrUncertain may
// have taken the units; all others have not.
func (l *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	k := l.calls.Get().(*call)
	defer l.calls.Put(k)
	k.key(0, l.redisKey(c.Key))
	r, at, err := l.store.reserve(ctx, l.script, k, c, n, ticksWithin(c.MaxWait, l.limit.scale))
	if err != nil {
		return throttle.Decision{}, err
	}
	d := l.limit.decision(r.part(0), r.now(), at)
	if l.limit.wide && d.OK && !c.DryRun {
		keep(k.parts, d, r.part(0))
		d = l.trails.Mark(d, k.parts)
	}
	return d, nil
}

// Cancel implements throttle.Limiter. If it fails nobody is told: the units are then lost
// until time gives them back.
func (l *Limiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		l.settle(ctx, verbCancel, c, -n, d, c.Now)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only afterwards,
// as the limiter in memory does. If it fails nobody is told.
func (l *Limiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if extra, ends := extra(c, d, f); ends && (extra != 0 || l.limit.holds || l.limit.wide) {
		l.settle(ctx, verbSettle, c, extra, d, f.Now)
	}
}

// extra returns how many units more than claimed c turned out to cost; negative: how many
// less. It reports false if there is nothing to settle.
func extra(c throttle.Claim, d throttle.Decision, f throttle.Feedback) (int64, bool) {
	n, err := c.Units()
	switch {
	case err != nil || !d.OK || f.More:
		return 0, false
	case f.Cost <= 0:
		return 0, true
	}
	return f.Cost - n, true
}

func (l *Limiter) settle(ctx context.Context, verb any, c throttle.Claim, extra int64, d throttle.Decision, now time.Time) {
	k := l.calls.Get().(*call)
	defer l.calls.Put(k)
	k.key(0, l.redisKey(c.Key))
	n, _ := c.Units()
	k.ask(verb, n, clip(extra))
	if !l.limit.wide {
		grant, acts := l.limit.granted(d)
		k.grant(grant, acts)
		l.store.settle(ctx, l.script, k, now)
		return
	}
	l.trails.Follow(d, false, func(parts []throttle.Decision) {
		if l.limit.grantOf(k, parts); extra != 0 {
			l.store.settle(ctx, l.script, k, now)
		}
	})
}
