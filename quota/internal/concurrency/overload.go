package concurrency

import (
	"math"
	"math/bits"
	"time"
)

// A AdaptiveLimiter sends fewer requests at a time while a fifth of them fails, if that makes failures rarer. Failures that
// do not depend on the requests in flight are none of its business: one bad backend, a bug, an outage.
//
// It counts outcomes by the number of requests that were in flight when each was sent, in powers of two. When
// there are enough with many and with few in flight, their shares decide:
//
//	                       share of failures with
//	                       few in flight    many        the limiter
//	overload                    2 %         40 %        limits
//	a bad backend              10 %         11 %        rests
//
// While the load does not vary by itself, the limiter lowers its limit to find out. The limit changes as in TCP:
// it is multiplied by 0.7 at most once per round trip in which there is a failure, and grows by one in a round
// trip without. When failures do not depend on the load, or more calls give up than failed before, the limit is
// dropped and the limiter rests. It reads no latency, because latency varies for other reasons, too.
//
// The zero AdaptiveLimiter does not limit. It is not safe for concurrent use.
type AdaptiveLimiter struct {
	recent uint64 // the latest outcomes, a bit each, the latest one lowest: 1 is a failure
	n      uint8  // bits of recent in use

	levels [levels]level // outcomes by the logarithm of the requests in flight
	most   float64       // requests in flight with which others were accepted of late

	latest  time.Time // when the latest outcome was known
	first   time.Time // when the first of the recent failures was known; zero: there are none
	limit   float64   // requests in flight; 0: not limited
	lastCut uint64    // latest claim that was sent at the last cut
	share   float64   // of failures when the limit was set
	least   float64   // the limit is not lowered further
	known   bool      // failures are known to depend on it
	since   time.Time // when it was set
	sent    int       // outcomes since then
	bad     int       // failures of these
	gaveUp  int       // calls that gave up since then
	floor   level     // outcomes with one request in flight since then

	restUntil time.Time
	rests     uint8 // in a row
}

// A level counts the outcomes of requests that were sent with 2^i to 2^(i+1)-1 requests in flight.
type level struct{ n, bad uint16 }

const (
	levels      = 14  // more than 8191 in flight count as 8192
	oneIn       = 5   // of the latest outcomes, in which a failure makes the limiter act
	minFailures = 6   // of the latest outcomes, for that
	cut         = 0.7 // factor of the limit
	lowest      = 2   // the limit is lowered to this part, before failures are known to depend on it
	minSide     = 8   // outcomes with few and with many in flight that can be compared
	ratio       = 1.5 // of the shares of failures that depend on the load
	maxOutcomes = 256 // beyond it all counts are halved
	mostWeight  = 64  // accepted requests, after which most of their number in flight is forgotten
	firstRest   = time.Minute
	oldAfter    = 10 * time.Second // without an outcome, after which those before are forgotten, or oldTrips round trips
	oldTrips    = 4
	maxRests    = 6  // doublings of it
	restTrips   = 50 // round trips that a rest lasts at least
	effectTrips = 3  // round trips after which outcomes show the effect of a limit
	testTrips   = 20 // round trips after which a limit that shows nothing is dropped
)

// Share returns the part of the latest outcomes that were failures.
func (g *AdaptiveLimiter) Share() float64 {
	return (float64(bits.OnesCount64(g.recent)) + .5) / (float64(g.n) + minSide)
}

// Accepts reports whether a request that is sent with so many in flight was accepted of late. The number of the accepted
// ones is rounded: with five workers, one that is accepted beside three others makes it 4.98, and five are as usual.
func (g *AdaptiveLimiter) Accepts(with int64) bool {
	return float64(with) <= math.Round(max(g.most, 1))
}

// Limit returns the limit on the requests in flight; 0: there is none.
func (g *AdaptiveLimiter) Limit() int64 { return int64(g.limit) }

// Check reports whether one more request may be sent as of now, with open in flight. A limit that is not used any more
// is dropped.
func (g *AdaptiveLimiter) Check(open int64, roundTrip time.Duration, now time.Time) bool {
	return g.limit == 0 || open < int64(g.limit) || g.isOld(roundTrip, now)
}

// isOld reports whether there was no outcome for so long that those before say nothing about now.
func (g *AdaptiveLimiter) isOld(roundTrip time.Duration, now time.Time) bool {
	return now.Sub(g.latest) > max(oldAfter, oldTrips*roundTrip)
}

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

// A Verdict is what a AdaptiveLimiter has found out.
type Verdict uint8

const (
	Unknown     Verdict = iota // nothing new
	Dependent                  // failures depend on the requests in flight
	Independent                // they do not: the limiter rests, and what has waited may be sent
)

// Add applies an outcome that is known now.
func (g *AdaptiveLimiter) Add(o Outcome, now time.Time) Verdict {
	if g.isOld(o.RoundTrip, now) {
		*g = AdaptiveLimiter{most: g.most, restUntil: g.restUntil, rests: g.rests}
	}
	g.latest = now
	switch g.count(o); {
	case g.recent == 0:
		g.first = time.Time{}
	case g.first.IsZero():
		g.first = now
	}
	if o.CountOnly || now.Sub(g.first) < o.RoundTrip {
		return Unknown // failures may arrive earlier than successes
	}
	if g.limit == 0 {
		k := bits.OnesCount64(g.recent)
		if !o.Failed || k < minFailures || oneIn*k < int(g.n) || now.Before(g.restUntil) {
			return Unknown
		}
		v := g.verdict()
		if v == Independent {
			g.rest(o.RoundTrip, now)
			return Independent
		}
		g.limit, g.since, g.sent, g.bad, g.gaveUp, g.floor = float64(max(o.Open, 1)), now, 0, 0, 0, level{}
		g.share, g.least, g.known = float64(k)/float64(g.n), max(g.limit/lowest, 1), false
		if v == Dependent {
			g.least, g.known = 1, true
		}
		g.lower(o)
		return v
	}
	g.sent++
	if o.Failed {
		g.bad++
	}
	if g.limit < 2 && o.Claim > g.lastCut { // few in flight fail, too
		if g.floor.n == math.MaxUint16 {
			g.floor.n, g.floor.bad = g.floor.n/2, g.floor.bad/2
		}
		g.floor.n++
		if o.Failed {
			g.floor.bad++
		}
		if g.floor.n >= minSide && 2*float64(g.floor.bad) >= g.share*float64(g.floor.n) {
			g.rest(o.RoundTrip, now)
			return Independent
		}
	}
	v := g.verdict()
	switch {
	case v == Dependent:
		g.least, g.known = 1, true
	case v == Independent && now.Sub(g.since) > effectTrips*o.RoundTrip && g.sent >= minSide,
		!g.known && now.Sub(g.since) > testTrips*o.RoundTrip && g.sent >= minSide:
		g.rest(o.RoundTrip, now)
		return Independent
	}
	switch {
	case o.Failed && o.Claim > g.lastCut:
		g.lower(o)
	case o.Failed:
	case 2*o.Open >= int64(g.limit):
		g.limit += 1 / g.limit
	case g.recent == 0 && g.n == 64:
		g.limit, g.rests = 0, 0
	}
	return Unknown
}

// lower lowers the limit.
func (g *AdaptiveLimiter) lower(o Outcome) {
	g.limit = max(min(g.limit, float64(o.Open))*cut, g.least, 1)
	g.lastCut = o.Sent
}

// count adds an outcome to the counts.
func (g *AdaptiveLimiter) count(o Outcome) {
	g.recent, g.n = g.recent<<1, min(g.n+1, 64)
	l := &g.levels[min(bits.Len64(uint64(max(o.With, 1)))-1, levels-1)]
	l.n++
	if o.Failed {
		g.recent |= 1
		l.bad++
	} else {
		g.most = max(g.most+(float64(o.With)-g.most)/mostWeight, float64(o.With))
	}
	all := 0
	for i := range g.levels {
		all += int(g.levels[i].n)
	}
	if all > maxOutcomes {
		for i := range g.levels {
			g.levels[i].n /= 2
			g.levels[i].bad /= 2
		}
	}
}

// verdict compares the outcomes with few and with many requests in flight: the levels below the median, and the
// others.
func (g *AdaptiveLimiter) verdict() Verdict {
	var few, many level
	for _, l := range g.levels {
		many.n, many.bad = many.n+l.n, many.bad+l.bad
	}
	all := many.n
	for _, l := range g.levels {
		if few.n >= minSide && 2*(few.n+l.n) > all || many.n < l.n+minSide {
			break
		}
		few.n, few.bad, many.n, many.bad = few.n+l.n, few.bad+l.bad, many.n-l.n, many.bad-l.bad
	}
	if few.n < minSide || many.n < minSide || few.bad+many.bad < minFailures {
		return Unknown
	}
	if float64(many.bad)*float64(few.n) >= ratio*float64(few.bad)*float64(many.n) {
		return Dependent
	}
	return Independent
}

// GaveUp applies that a call has given up because of the limit. It reports whether the limit is dropped: more
// calls give up and fail now than failed without it.
func (g *AdaptiveLimiter) GaveUp(roundTrip time.Duration, now time.Time) (dropped bool) {
	if g.limit == 0 {
		return false
	}
	g.gaveUp++
	if g.gaveUp < minSide || float64(g.gaveUp+g.bad) <= g.share*float64(g.gaveUp+g.sent) {
		return false
	}
	g.rest(roundTrip, now)
	return true
}

// Explained drops the counts and the limit, because something else has explained the failures.
func (g *AdaptiveLimiter) Explained() {
	*g = AdaptiveLimiter{most: g.most, restUntil: g.restUntil, rests: g.rests}
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
