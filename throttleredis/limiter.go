package throttleredis

import (
	"cmp"
	"context"
	"fmt"

	"github.com/heed-go/heed/throttle"
)

// A Limiter is one limit in a Store, with separate state for each Claim.Key. It implements
// throttle.Limiter. Its methods do I/O, except in Mode Eventual, in
// which they return immediately, and for most claims in Mode Leased.
//
// Decision.At is Claim.Now, or the local reading of the clock at which the response
// arrived, and Wait counts from it. It does not depend on the server's clock.
type Limiter struct {
	scripted
	limit     limit
	keyPrefix string      // of Redis keys, before the tag
	keySuffix string      // of Redis keys, after the tag
	usage     *limitUsage // decides in Mode Eventual; nil in other Modes
	leases    *leases     // decides in Mode Leased; nil in other Modes, and if the units of the limit cannot be used later
}

// limiter returns the limiter of l. It panics if newLimiter returns an error.
func (s *Store) limiter(l limit) *Limiter {
	r, err := s.newLimiter(l)
	if err != nil {
		panic(err.Error())
	}
	return r
}

// newLimiter returns the limiter of l. It fails if l or s is invalid, or another limit is the same.
func (s *Store) newLimiter(l limit) (*Limiter, error) {
	if err := cmp.Or(l.err, s.Validate()); err != nil {
		return nil, err
	}
	if s.Mode == Leased {
		l.capacity, l.per = l.capacity-l.leaseMargin, l.per-l.leaseReserve
	} else {
		l.leaseMargin = 0
	}
	l.ticksPerMicro = cmp.Or(l.ticksPerMicro, 1)
	r := &Limiter{limit: l}
	if s.Mode == Eventual {
		usage, err := s.newUsage(l)
		if err != nil {
			return nil, err
		}
		r.usage = usage
	}
	id := limitID(&l, l.shape)
	if l.name == "" {
		id = limitID(&l, l.numbers())
		if _, twice := s.unnamed.LoadOrStore(id, true); twice {
			return nil, fmt.Errorf("throttleredis: %s %q: the store has a limit without a Name and with the same numbers, and both would be one limit: set Name, or use the first Limiter", l.algorithm, l.policy)
		}
	}
	r.keyPrefix, r.keySuffix = s.prefix()+":{", "}:"+id
	r.init(s, l.wideGrant, r)
	r.leases = s.newLeases(r)
	return r, nil
}

func (l *Limiter) redisKey(key string) string { return l.keyPrefix + hashTag(key) + l.keySuffix }

// Reserve implements throttle.Limiter. If the error matches ErrUncertain, the units may
// have been taken; otherwise an error means that no units were taken. A Redis that is out of
// memory is no error: the claim is rejected, with Decision.Degraded.
func (l *Limiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	switch {
	case l.usage != nil:
		return l.usage.reserve(c, n), nil
	case l.leases != nil:
		return l.leases.reserve(ctx, c, n)
	}
	return l.ask(ctx, c, n)
}

// Report implements throttle.Limiter. It settles a cost that was unknown before, as the
// limiter in memory does. It does not report failures.
func (l *Limiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	switch {
	case l.reportLocally(c, d, f):
	case l.usage != nil:
		l.usage.adjust(c, d, f.ExtraCost(c, d), f.Now)
	default:
		l.settle(ctx, c, d, f)
	}
}

// reportLocally settles a claim if that changes nothing in Redis, and otherwise returns false.
func (l *Limiter) reportLocally(c throttle.Claim, d throttle.Decision, f throttle.Feedback) bool {
	extra := f.ExtraCost(c, d)
	if extra == 0 {
		return !ends(c, d, f) || !l.holds && !l.wraps
	}
	return l.leases != nil && l.leases.report(c, d, extra)
}

// Traits implements throttle.Limiter. The limits of Store.LeakyBucket, TickQueue, Nginx, WarmUp
// and Bursty book ahead.
func (l *Limiter) Traits() throttle.Traits {
	return throttle.Traits{
		NonBlocking:    l.usage != nil,
		EndsAtResponse: !l.holds,
		BooksAhead:     l.limit.booksAhead(),
		CountsRejected: l.countsRejected,
	}
}

// ends reports whether f ends the claim c that d granted.
func ends(c throttle.Claim, d throttle.Decision, f throttle.Feedback) bool {
	_, err := c.Units()
	return err == nil && d.OK && f.State != throttle.Ongoing
}
