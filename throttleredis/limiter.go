package throttleredis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Limiter is one limit in a Store, with separate state for each Claim.Key. It implements
// throttle.Limiter and throttle.Observer. Its methods do I/O, except in Mode Eventual, in
// which they return immediately.
//
// Decision.At is Claim.Now, or the local reading of the clock at which the response
// arrived, and Wait counts from it. It does not depend on the server's clock.
type Limiter struct {
	store     *Store
	script    *script
	limit     limit
	keyPrefix string // of Redis keys, before the tag
	keySuffix string // of Redis keys, after the tag
	callPool  sync.Pool
	subGrants throttle.SubGrants // of grants that do not fit into a Decision
	usage     *limitUsage        // decides in Mode Eventual; nil in Mode Synchronous
}

// limiter returns the limiter of l. It panics if newLimiter returns an error.
func (s *Store) limiter(l limit) *Limiter {
	r, err := s.newLimiter(l)
	if err != nil {
		panic(err.Error())
	}
	return r
}

// newLimiter returns the limiter of l, or an error if l or s is invalid, or if another limit would
// be the same one.
func (s *Store) newLimiter(l limit) (*Limiter, error) {
	if err := firstError(l.err, s.Validate()); err != nil {
		return nil, err
	}
	r := &Limiter{store: s, limit: l, script: scriptOf(l.algorithm)}
	if s.Mode == Eventual {
		usage, err := s.newUsage(l)
		if err != nil {
			return nil, err
		}
		r.usage = usage
	}
	id := keyID(&l)
	if l.name == "" && !s.addUnnamed(id) {
		return nil, fmt.Errorf("throttleredis: %s %q: the store has a limit without a Name and with the same numbers, and both would be one limit: set Name, or use the first Limiter", l.algorithm, l.policy)
	}
	r.keyPrefix, r.keySuffix = s.prefix()+":{", "}:"+id
	r.callPool.New = func() any { return newCall(r) }
	return r, nil
}

// redisKey returns the Redis key for a claim's key.
func (l *Limiter) redisKey(key string) string { return l.keyPrefix + hashTag(key) + l.keySuffix }

// NonBlocking is the method that throttle.IsNonBlocking calls. It returns true in Mode Eventual;
// otherwise Reserve does I/O.
func (l *Limiter) NonBlocking() bool { return l.usage != nil }

// Reserve implements throttle.Limiter. If the error matches ErrUncertain, the units may
// have been taken; otherwise an error means that no units were taken. A Redis that is out of
// memory is no error: the claim is rejected, with Decision.Degraded.
func (l *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return l.ReserveAhead(ctx, c, 0)
}

// ReserveAhead implements throttle.Booker for the limits of Store.LeakyBucket, TickQueue,
// Nginx, WarmUp and Bursty. For others it is Reserve.
func (l *Limiter) ReserveAhead(ctx context.Context, c throttle.Claim, maxWait time.Duration) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if l.usage != nil {
		return l.usage.reserve(c, n), nil
	}
	k := l.callPool.Get().(*call)
	defer l.callPool.Put(k)
	k.setKey(0, l.redisKey(c.Key))
	r, at, err := l.store.reserve(ctx, l.script, k, c, n, waitArg(c, maxWait, l.limit.ticksPerMicro))
	if err != nil {
		return l.limit.afterError(ctx, c, at, err)
	}
	d := l.limit.decision(r.part(0), c, r.now(), at)
	if l.limit.wideGrant && d.OK && !c.DryRun {
		storeGrant(k.decisions, d, r.part(0))
		d = l.subGrants.Wrap(d, k.decisions)
	}
	return d, nil
}

// Cancel implements throttle.Limiter. It does not report failures: units that it could not
// return are restored by time.
func (l *Limiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		l.settle(ctx, opCancel, c, -n, d, c.Now)
	}
}

// Observe implements throttle.Observer. It settles a cost that was unknown before, as the
// limiter in memory does. It does not report failures.
func (l *Limiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if extra, ends := extraUnits(c, d, f); ends && (extra != 0 || l.limit.holdsUntilEnd || l.limit.wideGrant) {
		l.settle(ctx, opSettle, c, extra, d, f.Now)
	}
}

// extraUnits returns the actual cost of c minus the units claimed. It returns false if
// there is nothing to settle.
func extraUnits(c throttle.Claim, d throttle.Decision, f throttle.Feedback) (int64, bool) {
	n, err := c.Units()
	switch {
	case err != nil || !d.OK || f.Partial:
		return 0, false
	case f.Cost <= 0:
		return 0, true
	}
	return f.Cost - n, true
}

func (l *Limiter) settle(ctx context.Context, op string, c throttle.Claim, extra int64, d throttle.Decision, now time.Time) {
	if l.usage != nil {
		l.usage.adjust(c, d, extra, now)
		return
	}
	k := l.callPool.Get().(*call)
	defer l.callPool.Put(k)
	k.setKey(0, l.redisKey(c.Key))
	n, _ := c.Units()
	k.setOp(op, n, clampUnits(extra))
	if !l.limit.wideGrant {
		grant, acts := l.limit.grantArgs(d)
		k.appendGrant(grant, acts)
		l.store.settle(ctx, l.script, k, now)
		return
	}
	l.subGrants.Unwrap(d, false, func(parts []throttle.Decision) {
		if l.limit.appendGrant(k, parts); extra != 0 {
			l.store.settle(ctx, l.script, k, now)
		}
	})
}
