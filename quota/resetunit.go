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
//	receipt   0 ms   10 ms
//	reset     850    840     milliseconds: as seconds it would be 850 or 849
type resetUnit struct {
	mu      sync.Mutex
	key     uint64        // hash of the name and the size of the limit
	first   time.Duration // reset of a response, with which later ones of the window are compared, read as seconds
	at      time.Time     // of that response
	last    time.Duration // reset of the latest response, read as seconds
	millis  bool          // the latest response that showed anything showed milliseconds
	seconds int8          // responses in a row that showed seconds
}

const (
	// leastReset is the shortest reset, read as seconds, that may be taken for milliseconds. Few windows last less than
	// half a second, and short resets of several windows may differ by as many units as there are milliseconds between.
	leastReset = 500 * time.Second

	showSeconds = 3 // responses in a row that show seconds, after which none is compared any more

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

// observe compares the reset of a limit, received at now, with an earlier one of its window. It reports whether the
// resets are known to count seconds, or milliseconds.
func (u *resetUnit) observe(key uint64, reset time.Duration, now time.Time) (seconds, millis bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, fell := now.Sub(u.at), u.first-reset
	over := since >= u.first/1000 // the window is over if they count milliseconds
	if u.at.IsZero() || key != u.key || since < 0 || reset > u.last {
		over = true // another window
	} else if u.first >= leastReset && since >= 5*time.Millisecond && (fell/1000-since).Abs() <= since/4+2*time.Millisecond {
		u.millis, u.seconds = true, 0
	} else if since >= time.Second && fell <= since+time.Second && (!over || fell > 0 && fell >= since-time.Second) {
		u.millis, u.seconds = false, u.seconds+1
	}
	if u.last = reset; over {
		u.key, u.first, u.at = key, reset, now
	}
	return u.seconds >= showSeconds, u.millis
}
