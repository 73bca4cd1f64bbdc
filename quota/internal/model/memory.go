package model

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// A Memory counts the bytes that the quotas of one account have reserved. They are bounded to 16 KiB,
// whatever the server sends: quotas, their estimates, their units, routes and patterns reserve bytes
// before they are added, and are not tracked if these are not available.
type Memory struct{ atomic.Int64 }

// Bytes that are reserved.
const (
	// MaxBytes is the maximum of a Memory. It is less than 16 KiB because the account itself, the quota
	// of its unknown routes, its names and the empty slots of maps are not reserved.
	MaxBytes = 27 << 9

	EstimateBytes = int64(unsafe.Sizeof(statedlimit.Estimate{})) + 48 // with the rounding to size classes; without its name
	LearnedBytes  = int64(unsafe.Sizeof(Learned{})) + 8               // also of a limit that is declared
)

// Reserve reserves n bytes. It reports false, and reserves nothing, if they are not available.
func (m *Memory) Reserve(n int64) bool {
	if m.Add(n) > MaxBytes {
		m.Add(-n)
		return false
	}
	return true
}

// Release releases n bytes.
func (m *Memory) Release(n int64) { m.Add(-n) }

// bytesOf returns the number of bytes that are reserved for estimates.
func bytesOf(list []statedlimit.Estimate) (n int64) {
	for i := range list {
		n += EstimateBytes + int64(len(list[i].Name))
	}
	return n
}

// DropAll removes what q knows of limits, and prevents it from learning anything. It returns the number of
// bytes that were reserved for it.
func (q *Quota) DropAll() (bytes int64) {
	bytes = q.DropEstimates() + q.dropSends()
	if q.Learned != nil {
		bytes += LearnedBytes
	}
	q.Learned = nil
	return bytes
}

// dropSends removes the log of sent requests, and returns the number of bytes that were reserved for it.
func (q *Quota) dropSends() int64 {
	if q.sends == nil {
		return 0
	}
	q.sends = nil
	return statedlimit.LogBytes
}

// staleAfter is the time after its end, or its latest rejection, after which a hold without a test counts as over, and the time
// without requests after which a learned rate is needed no more.
const staleAfter = 10 * time.Minute

// ForgetAll removes everything that q knows, so that it admits all requests.
func (q *Quota) ForgetAll() {
	q.Hold, q.Overload, q.Ramp, q.tests = hold.Hold{}, concurrency.AdaptiveLimiter{}, concurrency.Ramp{}, tests{}
	q.Estimates, q.Learned, q.firsts = nil, nil, firstAttempts{}
}

// SetBack applies that the clock was set back to now. The times that q knows are in the future, so it forgets
// everything but the claims in flight and what was declared.
func (q *Quota) SetBack(now time.Time) {
	q.Account.Memory.Release(bytesOf(q.Estimates) + q.dropSends())
	l := q.Learned
	q.ForgetAll()
	switch {
	case l == nil:
	case l.Window.Declared:
		q.Learned = &Learned{Window: learnedlimit.NewDeclaredWindow(l.Window.Limit, l.Window.Length)}
	default:
		q.Account.Memory.Release(LearnedBytes)
	}
	q.trip, q.Span, q.FetchUntil, q.LastGranted = roundTrip{}, learnedlimit.AcceptedSpan{}, time.Time{}, now
}

// LastUse returns when q last admitted a request. It reports whether q is idle: it admits all
// requests as of now, or has a learned rate that is not needed any more, and none is in flight.
func (q *Quota) LastUse(now time.Time) (at time.Time, idle bool) {
	h, l := &q.Hold, q.Learned
	held := h.Held && ticks.Later(h.Until, h.Latest).After(now.Add(-staleAfter))
	estimated := l != nil && (l.Loop.On() && now.Sub(q.LastGranted) < staleAfter || l.Window.On() && now.Before(l.Window.Reset))
	return q.LastGranted, q.InFlight.Open == 0 && !held && !estimated && !q.UsedUp(now)
}

// UsedUp reports whether nothing is left of a limit that the server states, until its reset.
func (u *Units) UsedUp(now time.Time) bool {
	return slices.ContainsFunc(u.Estimates, func(e statedlimit.Estimate) bool { return e.Remaining <= 0 && now.Before(e.Reset) })
}
