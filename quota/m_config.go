package quota

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// A modelAccount is what the quotas of one account have in common.
type modelAccount struct {
	*modelConfig
	names  modelNames
	memory memory
}

// modelNames are the names of limits in decisions.
type modelNames struct{ quota, retryAfter, learnedRate, slowStart, slowResponses string }

// A modelConfig is what the quotas of one Tracker have in common.
type modelConfig struct {
	Full               bool               // limits that the server does not state are estimated
	InitialConcurrency int                // bound on the requests in flight at the beginning of slow start; negative: none
	Pacing             statedlimit.Pacing // how the remaining units are spent
	Random             func() float64     // returns random numbers in [0, 1)
}

// A memory counts the bytes that the quotas of one endpoint have reserved. They are bounded to 16 KiB,
// whatever the server sends: quotas, their estimates, unit quotas, routes and patterns reserve bytes
// before they are added, and are not tracked if these are not available.
type memory struct{ atomic.Int64 }

const (
	// maxBytes is less than 16 KiB because the endpoint itself, its unknown quota, its names
	// and the empty slots of maps are not reserved.
	maxBytes = 27 << 9

	estimateBytes  = int64(unsafe.Sizeof(statedlimit.Estimate{})) + 48 // with the rounding to size classes; without its name
	inferenceBytes = int64(unsafe.Sizeof(inference{})) + 8
)

// Reserve reserves n bytes. It reports false, and reserves nothing, if they are not available.
func (m *memory) Reserve(n int64) bool {
	if m.Add(n) > maxBytes {
		m.Add(-n)
		return false
	}
	return true
}

// Release releases n bytes.
func (m *memory) Release(n int64) { m.Add(-n) }

// bytesOf returns the number of bytes that are reserved for estimates.
func bytesOf(list []statedlimit.Estimate) (n int64) {
	for i := range list {
		n += estimateBytes + int64(len(list[i].Name))
		if list[i].HasLog() {
			n += statedlimit.LogBytes
		}
	}
	return n
}

// dropAll removes what q knows of limits, and prevents it from learning anything. It returns the number of
// bytes that were reserved for it.
func (q *modelQuota) dropAll() (bytes int64) {
	bytes = q.dropEstimates()
	if q.inference != nil {
		bytes += inferenceBytes
	}
	q.inference = nil
	return bytes
}

// staleAfter is the time after its end at which a hold that no probe has tested counts as over.
const staleAfter = 10 * time.Minute

// forgetAll removes everything that q knows, so that it admits all requests.
func (q *modelQuota) forgetAll() {
	q.hold, q.slow, q.slowStart = hold.Hold{LastSent: q.hold.LastSent}, concurrency.SlowResponses{}, concurrency.SlowStart{Successes: concurrency.KnownAfter}
	q.estimates, q.inference = nil, nil
}

// lastUse returns when q last admitted a request. It reports whether q is idle: it admits all
// requests as of now, and none is in flight.
func (q *modelQuota) lastUse(now time.Time) (at time.Time, idle bool) {
	h, inf := &q.hold, q.inference
	held := h.Until.After(now) || h.Active && h.Until.After(now.Add(-staleAfter))
	estimated := inf != nil && (inf.loop.On() || inf.loopPending || inf.stopPending || inf.window.On() && now.Before(inf.window.Reset))
	usedUp := slices.ContainsFunc(q.estimates, func(e statedlimit.Estimate) bool { return e.Remaining <= 0 && now.Before(e.Reset) })
	return q.lastGranted, q.inFlight.Open == 0 && !held && !estimated && !usedUp
}
