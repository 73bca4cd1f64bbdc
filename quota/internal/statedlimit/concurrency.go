package statedlimit

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// A limit of requests in flight is one that the server names so (Concurrency-Remaining). Its units come back when a
// response ends, and not with time, so what is left and the claims in flight together are what may be in flight:
//
//	remaining   9   6   3   1   4   8
//	in flight   1   4   7   9   6   2
//	            └───┴── 10 ─┴───┘
//
// It delays nothing until a rejection states that none is left: a server may state constant numbers.

const (
	UnitConcurrent        = "concurrent_requests" // RemoteLimit.Unit of limits of requests in flight
	concurrencyProbeAfter = time.Second           // wait for a probe if other clients have all units
)

// updateConcurrency applies l, a limit of requests in flight. Then e.remaining is how many requests may be in flight. own is
// 1 if the server has counted the request of the response, which was in flight then, and 0 if not.
func (e *Estimate) updateConcurrency(l throttle.RemoteLimit, own int64, now time.Time, f *inflight.Claims) {
	open := f.Open + own
	left := min(max(l.Remaining, 0), math.MaxInt64-open) // a server may state any number
	e.Limit, e.Remaining, e.Per = max(l.Limit, l.Remaining), left+open, l.Per
	if l.Limit > 0 {
		e.Remaining = min(e.Remaining, l.Limit)
	}
	e.At, e.LastSent, e.Reset, e.Probe = now, f.Sent, now.Add(concurrencyProbeAfter), false
}

// freeConcurrency is the method free for a limit of requests in flight.
func (e *Estimate) freeConcurrency(now time.Time, f *inflight.Claims, p Pacing) (units int64, wait time.Duration) {
	if !e.enforced {
		return math.MaxInt64, 0
	}
	units = e.Remaining - f.Open - p.Reserved(e.Limit)
	if units > 0 || f.Open > 0 {
		return max(units, 0), 0
	}
	if wait = e.Reset.Sub(now); wait > 0 {
		return 0, wait
	}
	return 1, 0
}
