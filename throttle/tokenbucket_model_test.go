package throttle_test

import (
	"math/big"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// exactBucket is a token bucket in rational numbers, with which TokenBucket must agree.
type exactBucket struct {
	limit  throttle.Limit
	tokens *big.Rat
	now    int64 // nanoseconds; tokens are as of it
	limits int   // number of limits so far
}

func newExactBucket(l throttle.Limit) *exactBucket {
	return &exactBucket{limit: l, tokens: whole(l.Burst), limits: 1}
}

// advance moves to now, unless it is earlier.
func (m *exactBucket) advance(now int64) {
	m.now, m.tokens = max(m.now, now), m.at(now)
}

// at returns the tokens as of now.
func (m *exactBucket) at(now int64) *big.Rat {
	sum := new(big.Rat).Add(m.tokens, inflow(m.limit, max(now-m.now, 0)))
	return minRat(sum, whole(m.limit.Burst))
}

// wait returns for how many nanoseconds n units must wait; 0: not at all.
func (m *exactBucket) wait(n, now int64) int64 {
	missing := new(big.Rat).Sub(whole(n), m.at(now))
	return max(ceil(missing.Mul(missing, perUnit(m.limit))), 0)
}

// take takes n units at now, which may be more than there are.
func (m *exactBucket) take(n, now int64) {
	m.advance(now)
	m.tokens.Sub(m.tokens, whole(n))
}

// refund returns n units of a claim granted at granted, when the number of limits so far
// was under. Issue 13: it returns nothing if the limit has changed since.
func (m *exactBucket) refund(n, granted, now int64, under int) {
	m.advance(now)
	left := whole(n)
	left.Sub(left, inflow(m.limit, max(m.now-granted, 0)))
	if under == m.limits && left.Sign() > 0 {
		m.tokens = minRat(new(big.Rat).Add(m.tokens, left), whole(m.limit.Burst))
	}
}

func (m *exactBucket) setLimit(l throttle.Limit, now int64) {
	m.advance(now)
	m.limit, m.tokens = l, minRat(m.tokens, whole(l.Burst))
	m.limits++
}

// inflow returns the units restored within ns.
func inflow(l throttle.Limit, ns int64) *big.Rat {
	r := whole(ns)
	return r.Quo(r, perUnit(l))
}

// perUnit returns the nanoseconds in which a unit is restored.
func perUnit(l throttle.Limit) *big.Rat { return big.NewRat(int64(l.Per), l.Count) }

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// atomicClock is a clock that shows what it was set to, in nanoseconds since the epoch. It
// may be read and moved by many.
type atomicClock struct{ ns atomic.Int64 }

func (c *atomicClock) Now() time.Time { return time.Unix(0, c.ns.Load()) }
func (c *atomicClock) After(time.Duration) <-chan time.Time {
	panic("a limiter that decides does not wait")
}
