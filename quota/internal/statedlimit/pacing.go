package statedlimit

import (
	"math"
	"time"
)

// A Pacing is how a Tracker spends stated quotas. In the zero Pacing, what is left is used as
// requests come.
type Pacing struct {
	Spread   bool    // units are spread over the time until the reset
	Headroom float64 // part of each quota that is reserved for other clients
}

// Reserved returns how many units of limit are reserved for other clients.
func (p Pacing) Reserved(limit int64) int64 {
	if !(p.Headroom > 0) { // also if it is no number
		return 0
	}
	return int64(math.Ceil(min(p.Headroom, 1) * float64(limit)))
}

// spreads reports whether the free units of e are spread over the time until its reset. If units come
// back evenly, claims are spread without that.
func (p Pacing) spreads(e *Estimate) bool {
	return p.Spread && e.refill.kind != refillsEvenly && e.refill.kind != refillsNextWindow
}

// scheduleNext sets when the next claim of e is due after a claim at now, with which open claims are in
// flight: the free units divide the time until the reset.
func (p Pacing) scheduleNext(e *Estimate, now time.Time, open int64) {
	units := e.requests(e.Left(now)-p.Reserved(e.Limit)) - open
	if left := e.Reset.Sub(now); left > 0 {
		e.next = now.Add(left / time.Duration(max(units+1, 1)))
	}
}
