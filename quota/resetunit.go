package quota

import (
	"hash/maphash"
	"sync"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota/headers"
)

// A resetUnit finds out whether the resets of a host that states them as numbers without a unit count seconds or
// milliseconds: in one window a reset falls by the time between two responses.
//
//	receipt   0 ms   10 ms   20 ms
//	reset     850    840     830     milliseconds: as seconds it would be 850 or 849
type resetUnit struct {
	mu      sync.Mutex
	key     uint64        // hash of the name and the size of the limit
	first   time.Duration // reset of the first response of the window, read as seconds
	at      time.Time     // of that response
	seconds int8          // responses that show seconds
	millis  int8          // responses since the latest of these that show milliseconds
}

const (
	showMillis  = 2 // responses that show milliseconds
	showSeconds = 3 // responses that show seconds, after which none is compared any more

	resetUnitBytes = int64(unsafe.Sizeof(resetUnit{}))
)

// countsSeconds is the resetUnit of a host of which that is known.
var countsSeconds = &resetUnit{seconds: showSeconds}

// scaleResets corrects the resets of r, a response with this status that was received at now, if those of ep count
// milliseconds.
func (ep *endpoint) scaleResets(r *headers.Report, status int, now time.Time) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.ResetFormat != headers.FormatDeltaSeconds || l.ResetAfter == 0 {
			continue
		}
		u := ep.resetUnit.Load()
		if u == countsSeconds {
			return
		}
		if u == nil {
			if u = new(resetUnit); !ep.Memory.Reserve(resetUnitBytes) {
				return
			}
			if !ep.resetUnit.CompareAndSwap(nil, u) {
				ep.Memory.Release(resetUnitBytes)
				return
			}
		}
		key := maphash.Comparable(ep.tracker.seed, struct {
			name  string
			limit int64
		}{l.Name, l.Limit})
		seconds, millis := u.observe(key, l.ResetAfter, now)
		if seconds && ep.resetUnit.CompareAndSwap(u, countsSeconds) {
			ep.Memory.Release(resetUnitBytes)
		}
		if millis {
			r.ResetsInMilliseconds(status)
		}
		return
	}
}

// observe compares the reset of a limit, received at now, with the first one of its window. It reports whether the
// resets are known to count seconds, or milliseconds.
func (u *resetUnit) observe(key uint64, reset time.Duration, now time.Time) (seconds, millis bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, fell := now.Sub(u.at), u.first-reset
	switch {
	case u.at.IsZero() || fell < 0 || since < 0 || key != u.key: // another window
		u.key, u.first, u.at = key, reset, now
	case fell <= since+time.Second: // rounded
		if since >= 20*time.Millisecond {
			u.seconds, u.millis = u.seconds+1, 0
		}
	case since >= 5*time.Millisecond && fell/1000 >= since/2 && fell/1000 <= 2*since:
		u.millis++
	}
	return u.seconds >= showSeconds, u.millis >= showMillis
}
