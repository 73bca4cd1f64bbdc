package throttle_test

import (
	"math/big"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// exact is a token bucket in rationals: what TokenBucket must agree with.
type exact struct {
	limit  throttle.Limit
	tokens *big.Rat
	now    int64   // nanoseconds; tokens are as of it
	eras   []since // the limits so far, the latest last
}

// since is a limit and when it began to hold.
type since struct {
	at    int64
	limit throttle.Limit
}

func newExact(l throttle.Limit) *exact {
	return &exact{limit: l, tokens: whole(l.Burst), eras: []since{{0, l}}}
}

// pass moves to now, unless it is earlier.
func (m *exact) pass(now int64) {
	m.now, m.tokens = max(m.now, now), m.at(now)
}

// at returns the tokens as of now.
func (m *exact) at(now int64) *big.Rat {
	sum := new(big.Rat).Add(m.tokens, inflow(m.limit, max(now-m.now, 0)))
	return least(sum, whole(m.limit.Burst))
}

// wait returns for how many nanoseconds n units must wait; 0: not at all.
func (m *exact) wait(n, now int64) int64 {
	missing := new(big.Rat).Sub(whole(n), m.at(now))
	return max(ceil(missing.Mul(missing, perUnit(m.limit))), 0)
}

// take takes n units at now, which may be more than there are.
func (m *exact) take(n, now int64) {
	m.pass(now)
	m.tokens.Sub(m.tokens, whole(n))
}

// giveBack gives back n units of a claim granted at granted, when there had been so
// many limits.
func (m *exact) giveBack(n, granted, now int64, under int) {
	left := whole(n)
	for i, e := range m.eras[under-1:] {
		end := now
		if next := under + i; next < len(m.eras) {
			end = m.eras[next].at
			left.Sub(left, whole(max(e.limit.Burst-m.eras[next].limit.Burst, 0)))
		}
		left.Sub(left, inflow(e.limit, max(end-max(e.at, granted), 0)))
	}
	m.pass(now)
	if left.Sign() > 0 {
		m.tokens = least(new(big.Rat).Add(m.tokens, left), whole(m.limit.Burst))
	}
}

func (m *exact) setLimit(l throttle.Limit, now int64) {
	m.pass(now)
	m.limit, m.tokens = l, least(m.tokens, whole(l.Burst))
	m.eras = append(m.eras, since{now, l})
}

// inflow returns the units that flow in within ns.
func inflow(l throttle.Limit, ns int64) *big.Rat {
	r := whole(ns)
	return r.Quo(r, perUnit(l))
}

// perUnit returns the nanoseconds that a unit takes to come back.
func perUnit(l throttle.Limit) *big.Rat { return big.NewRat(int64(l.Per), l.Count) }

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// dial is a clock that shows what it was set to, in nanoseconds since the epoch. It
// may be read and moved by many.
type dial struct{ ns atomic.Int64 }

func (c *dial) Now() time.Time                       { return time.Unix(0, c.ns.Load()) }
func (c *dial) After(time.Duration) <-chan time.Time { panic("a limiter that decides does not wait") }
