package statedlimit

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// A concurrencyTest decides whether a limit counts requests in flight. Units of such a limit come
// back when a response ends, not with time, so the sum of the remaining units and the claims in
// flight is constant:
//
//	remaining   9   6   3   1   4   8
//	in flight   1   4   7   9   6   2
//	            └───┴── 10 ─┴───┘       in a window the sum would fall with each response
//
// Some servers state it in the name of the header (Concurrency-Remaining). Of other servers, one
// that states when units come back, or that rejects a request that such a limit would have
// admitted, does not count requests in flight. One that has rejected no request may state constant
// numbers, so nothing is inferred from them.
type concurrencyTest struct {
	confirmed        bool  // the limit counts requests in flight
	named            bool  // the server states that
	enforced         bool  // a request was rejected before it was confirmed
	excluded         bool  // it does not: a request was rejected that it had admitted
	fits             int64 // responses whose sum was the limit; halved by each other response
	minLeft, maxLeft int64 // units left at these responses
	misfits          int   // responses in a row whose sum was not the limit
}

const (
	UnitConcurrent        = "concurrent_requests" // RemoteLimit.Unit of limits of requests in flight
	minFits               = 8                     // fits that confirm, beyond the most claims in flight
	minLeftRange          = 3                     // difference of maxLeft and minLeft that confirms; or the limit less one
	maxMisfits            = 8                     // misfits in a row; one more ends the confirmation
	concurrencyProbeAfter = time.Second           // wait for a probe if other clients have all units
)

// update applies that left units of limit remain while open claims are in flight, and reports
// whether the limit counts requests in flight. Some claims, about a third at most, had not arrived
// when the server counted.
func (c *concurrencyTest) update(limit, left, open int64) bool {
	if c.named || c.excluded {
		return c.named
	}
	if sum := left + open; sum < limit-1 || sum > limit+1+open/3 {
		c.fits /= 2
		if c.misfits++; c.misfits > maxMisfits {
			c.confirmed = false
		}
		return c.confirmed
	}
	if c.fits == 0 {
		c.minLeft, c.maxLeft = left, left
	}
	c.fits, c.misfits = c.fits+1, 0
	c.minLeft, c.maxLeft = min(c.minLeft, left), max(c.maxLeft, left)
	c.confirmed = c.confirmed || c.enforced && c.fits >= minFits+limit-c.minLeft && c.maxLeft-c.minLeft >= max(min(minLeftRange, limit-1), 2)
	return c.confirmed
}

// rejected records that a request was rejected.
func (c *concurrencyTest) rejected() {
	switch {
	case c.named:
	case c.confirmed:
		*c = concurrencyTest{excluded: true}
	default:
		c.enforced = true
	}
}

// updateConcurrency applies l if e counts requests in flight, and reports whether it does. Then
// e.remaining is how many requests may be in flight. own is 1 if the server has counted the request of the response, which
// was in flight then, and 0 if not.
func (e *Estimate) updateConcurrency(l throttle.RemoteLimit, own int64, now time.Time, f *inflight.Claims) bool {
	was := e.concurrency.confirmed
	if !e.concurrency.named && comesBackLater(l) {
		return false
	}
	open := f.Open + own
	if !e.concurrency.update(l.Limit, max(l.Remaining, 0), open) {
		if was {
			e.refill, e.Reset = refill{}, now
		}
		return false
	}
	left := min(max(l.Remaining, 0), math.MaxInt64-open) // a server may state any number
	e.Limit, e.Remaining, e.Per = max(l.Limit, l.Remaining), left+open, l.Per
	if l.Limit > 0 {
		e.Remaining = min(e.Remaining, l.Limit)
	}
	e.At, e.LastSent, e.Reset, e.Probe = now, f.Sent, now.Add(concurrencyProbeAfter), false
	return true
}

// freeConcurrency is the method free for a limit of requests in flight.
func (e *Estimate) freeConcurrency(now time.Time, f *inflight.Claims, p Pacing) (units int64, wait time.Duration) {
	units = e.Remaining - f.Open - p.Reserved(e.Limit)
	if units > 0 || f.Open > 0 {
		return max(units, 0), 0
	}
	if wait = e.Reset.Sub(now); wait > 0 {
		return 0, wait
	}
	return 1, 0
}
