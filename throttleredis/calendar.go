package throttleredis

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A calendar computes where the windows of a time zone begin, which a script cannot. It
// passes four instants to the script: they bound the window of the local clock, the one
// before and the one after. The script uses the window that contains the server's time.
//
// If the local clock is wrong by more than a window, none of them contains the server's
// time. The script then returns its own reading, and is run again with the windows around
// that reading.
type calendar struct {
	quota  throttle.FixedWindowConfig
	cached atomic.Pointer[bounds]
	// microseconds by which the server's clock was ahead when it was in none of the windows
	clockOffset atomic.Int64
}

// bounds are the instants, in microseconds, at which four consecutive windows begin.
type bounds [4]float64

// boundsAt returns the bounds for a reading of the local clock.
func (c *calendar) boundsAt(now time.Time) *bounds {
	us := now.UnixMicro() + c.clockOffset.Load()
	b := c.cached.Load()
	if b == nil || float64(us) < b[1] || float64(us) >= b[2] {
		from, to := c.quota.Window(time.UnixMicro(us))
		before, _ := c.quota.Window(from.Add(-1))
		_, after := c.quota.Window(to)
		b = new(bounds)
		for i, t := range []time.Time{before, from, to, after} {
			b[i] = float64(t.UnixMicro())
		}
		c.cached.Store(b)
	}
	return b
}

// windowLength returns the length of the window that begins at start (in microseconds).
func (c *calendar) windowLength(start int64) time.Duration {
	if b := c.cached.Load(); b != nil {
		if i := slices.Index(b[:3], float64(start)); i >= 0 {
			return time.Duration(b[i+1]-b[i]) * time.Microsecond
		}
	}
	from, to := c.quota.Window(time.UnixMicro(start))
	return to.Sub(from)
}
