package concurrency

import (
	"math"
	"math/bits"
	"time"
	"unsafe"
)

// An AdaptiveLimiter sends fewer requests at a time while a fifth of them fails, if that makes failures rarer. Failures that
// do not depend on the requests in flight are none of its business: one bad backend, a bug, an outage.
//
// To find out, it divides the requests in flight by four when one of these fails too early for failures to have become
// rare, until they are likely to be at most a quarter as frequent as before. If they are as frequent with few in
// flight, or responses are so slow that it would take too long, it rests:
//
//	                 share of failures with
//	                 100     25      6 in flight
//	overload         40 %    38 %    2 %             limits
//	a bad backend    40 %    35 %   42 %, ...        rests
//
// Then the limit changes as in TCP: it doubles per round trip until there is a failure, which multiplies it by 0.7, at
// most once per round trip, and grows by one in a round trip without. When failures turn out not to depend on the
// load, or more calls give up than failed before, the limit is dropped and the limiter rests. It reads no latency,
// because latency varies for other reasons, too.
//
// The zero AdaptiveLimiter does not limit. It is not safe for concurrent use.
type AdaptiveLimiter struct {
	recent uint64    // the latest outcomes, a bit each, the latest one lowest: 1 is a failure
	n      uint8     // bits of recent in use
	most   float64   // requests in flight with which others were accepted of late
	latest time.Time // when the latest outcome was known

	*search // nil: there is nothing to find out
}

// A search is what an AdaptiveLimiter knows after a failure.
type search struct {
	first   time.Time // when the first of the recent failures was known; zero: there are none
	limit   float64   // requests in flight; 0: not limited
	lastCut uint64    // latest claim that was sent at the last cut
	share   float64   // of failures when the limit was set
	least   float64   // the limit is not lowered further to find out
	known   bool      // failures are known to depend on it
	fast    bool      // none has failed since: it doubles
	atLimit counts    // outcomes of what was sent since the last cut, within the limit
	since   counts    // outcomes since the limit was set, or failures were known to depend on it
	gaveUp  int       // calls that gave up since then
	used    time.Time // when at least half of the limit was used

	restUntil time.Time
	rests     uint8 // in a row
}

// SearchBytes is the size of what an AdaptiveLimiter allocates.
const SearchBytes = int64(unsafe.Sizeof(search{}))

// A counts counts outcomes.
type counts struct{ n, bad int }

const (
	minFailures = 13              // of the latest 64 outcomes, a fifth, with which a failure makes the limiter act
	step        = .25             // factor of the limit, to find out
	few         = 2               // in flight: the limit is not lowered further
	fewOf       = 1. / 32         // of those in flight before: it is not lowered further to find out
	rarer       = 4.0             // factor by which failures that depend on the load become rarer
	likely      = 2.0             // logarithm of the likelihood ratio that decides; half of it lowers the limit
	cut         = 0.7             // factor of the limit, when failures are known to depend on it
	minGiveUps  = 8               // calls that give up and show that the limit is no use
	slow        = 2 * time.Second // round trips with which it takes too long to find out
	maxAtLimit  = 64              // outcomes at a limit, beyond which the counts are halved
	mostWeight  = 64              // accepted requests, after which most of their number in flight is forgotten
	firstRest   = time.Minute
	oldAfter    = 10 * time.Second // without an outcome, after which those before are forgotten, or oldTrips round trips
	oldTrips    = 4
	maxRests    = 6  // doublings of it
	restTrips   = 50 // round trips that a rest lasts at least
)

// Share returns the part of the latest outcomes that were failures.
func (g *AdaptiveLimiter) Share() float64 {
	return (float64(bits.OnesCount64(g.recent)) + .5) / (float64(g.n) + 8)
}

// Accepts reports whether a request that is sent with so many in flight was accepted of late. The number of the accepted
// ones is rounded: with five workers, one that is accepted beside three others makes it 4.98, and five are as usual.
func (g *AdaptiveLimiter) Accepts(with int64) bool {
	return float64(with) <= math.Round(max(g.most, 1))
}

// Limit returns the limit on the requests in flight; 0: there is none.
func (g *AdaptiveLimiter) Limit() int64 {
	if g.search == nil {
		return 0
	}
	return int64(g.limit)
}

// Check reports whether one more request may be sent as of now, with open in flight. A limit that is not used any more
// is dropped.
func (g *AdaptiveLimiter) Check(open int64, roundTrip time.Duration, now time.Time) bool {
	limit := g.Limit()
	return limit == 0 || open < limit || g.isOld(roundTrip, now)
}

// isOld reports whether there was no outcome for so long that those before say nothing about now.
func (g *AdaptiveLimiter) isOld(roundTrip time.Duration, now time.Time) bool {
	return now.Sub(g.latest) > maxAge(roundTrip)
}

// maxAge returns the time after which what is known says nothing about now.
func maxAge(roundTrip time.Duration) time.Duration { return max(oldAfter, oldTrips*roundTrip) }

// An Outcome is how a request has ended.
type Outcome struct {
	Claim     uint64        // its number
	Failed    bool          // it failed, or was rejected without a time
	With      int64         // requests in flight when it was sent, it included
	Open      int64         // requests in flight now, it included
	Sent      uint64        // latest claim that was sent
	RoundTrip time.Duration // typical time to a response
	CountOnly bool          // it limits nothing, so that only Share and Accepts know it
}

// A Verdict is what an AdaptiveLimiter has found out.
type Verdict uint8

const (
	Unknown     Verdict = iota // nothing new
	Dependent                  // failures depend on the requests in flight
	Independent                // they do not: the limiter rests, and what has waited may be sent
)

// Add applies an outcome that is known now.
func (g *AdaptiveLimiter) Add(o Outcome, now time.Time) Verdict {
	if g.isOld(o.RoundTrip, now) {
		g.Explained()
	}
	g.latest = now
	if g.count(o); o.CountOnly || g.search == nil && !o.Failed {
		return Unknown
	}
	if g.search == nil {
		g.search = new(search)
	}
	switch {
	case g.recent == 0:
		g.first = time.Time{}
	case g.first.IsZero():
		g.first = now
	}
	if now.Sub(g.first) < o.RoundTrip {
		return Unknown // failures may arrive earlier than successes
	}
	if g.limit == 0 {
		k := bits.OnesCount64(g.recent)
		n := float64(max(o.With, o.Open))
		if !o.Failed || n < 2*few || o.RoundTrip > slow || k < minFailures || now.Before(g.restUntil) {
			return Unknown
		}
		g.limit, g.least, g.known, g.since, g.gaveUp, g.used = n, max(n*fewOf, few), false, counts{}, 0, now
		g.share = min(float64(k)/float64(bits.Len64(g.recent)), .9) // since the first of them
		g.lower(o, step)
		return Unknown
	}
	g.since.add(o.Failed)
	within := o.Claim > g.lastCut && o.With <= int64(g.limit) // calls without time to wait are sent beyond it
	if within {
		g.atLimit.add(o.Failed)
		if g.atLimit.n > maxAtLimit {
			g.atLimit.n, g.atLimit.bad = g.atLimit.n/2, g.atLimit.bad/2
		}
	}
	switch same := g.atLimit.same(g.share); {
	case same >= likely && g.limit < g.least+1, !g.known && o.RoundTrip > slow:
		g.rest(o.RoundTrip, now)
		return Independent
	case same >= likely/2 && !g.known && g.limit >= g.least+1:
		g.lower(o, step)
	case same <= -likely && !g.known:
		g.known, g.fast = true, true
		g.since, g.gaveUp = counts{}, 0
		return Dependent
	case o.Failed && g.known && within:
		g.lower(o, cut)
	case o.Failed || !g.known:
	case 2*o.Open >= int64(g.limit):
		g.used = now
		if g.fast {
			g.limit++
		} else {
			g.limit += 1 / g.limit
		}
	case g.recent == 0 && g.n == 64 && now.Sub(g.used) > maxAge(o.RoundTrip): // for less, callers may wait for their backoff
		g.limit, g.rests = 0, 0
	}
	return Unknown
}

// lower lowers the limit.
func (g *AdaptiveLimiter) lower(o Outcome, factor float64) {
	if g.limit >= g.least+1 {
		g.atLimit = counts{}
	}
	g.fast = false
	g.limit = max(min(g.limit, float64(o.Open))*factor, few)
	g.lastCut = o.Sent
}

// count adds an outcome to the latest ones.
func (g *AdaptiveLimiter) count(o Outcome) {
	g.recent, g.n = g.recent<<1, min(g.n+1, 64)
	if o.Failed {
		g.recent |= 1
	} else {
		g.most = max(g.most+(float64(o.With)-g.most)/mostWeight, float64(o.With))
	}
}

func (c *counts) add(failed bool) {
	if c.n++; failed {
		c.bad++
	}
}

// same returns the logarithm of how much likelier the outcomes are if failures are as frequent as they were than if they are
// rarer.
func (c counts) same(share float64) float64 {
	return float64(c.bad)*math.Log(rarer) - float64(c.n-c.bad)*math.Log((1-share/rarer)/(1-share))
}

// GaveUp applies that a call has given up because of the limit. It reports whether the limit is dropped: more
// calls give up and fail now than failed without it.
func (g *AdaptiveLimiter) GaveUp(roundTrip time.Duration, now time.Time) (dropped bool) {
	if g.Limit() == 0 {
		return false
	}
	g.gaveUp++
	if g.gaveUp < minGiveUps || float64(g.gaveUp+g.since.bad) <= g.share*float64(g.gaveUp+g.since.n) {
		return false
	}
	g.rest(roundTrip, now)
	return true
}

// Explained drops the counts and the limit, because something else has explained the failures.
func (g *AdaptiveLimiter) Explained() {
	if *g = (AdaptiveLimiter{most: g.most, search: g.search}); g.search != nil {
		*g.search = search{restUntil: g.restUntil, rests: g.rests}
	}
}

// rest drops the limit for a while.
func (g *AdaptiveLimiter) rest(roundTrip time.Duration, now time.Time) {
	g.limit = 0
	g.restUntil = now.Add(max(firstRest<<g.rests, restTrips*roundTrip))
	g.rests = min(g.rests+1, maxRests)
}

// MostFail reports whether at least half of the latest outcomes, and enough of them, were failures.
func (g *AdaptiveLimiter) MostFail() bool {
	return g.n >= 16 && 2*bits.OnesCount64(g.recent) >= int(g.n)
}
