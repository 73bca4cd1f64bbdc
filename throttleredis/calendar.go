package throttleredis

import (
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A calendar knows where the windows of a zone begin, which a script cannot. It gives four
// instants that bound the window of the local clock and its neighbours; the script takes the
// one that the server's clock is in.
//
// The odd case is a local clock that is wrong by more than a window. The script then says
// what its own shows, and is asked again with the windows around that.
type calendar struct {
	quota       throttle.FixedWindowConfig
	cached      atomic.Pointer[bounds]
	clockOffset atomic.Int64 // by how many microseconds the server's clock was ahead when it was outside
}

// bounds are the instants, in microseconds, at which four windows in a row begin. They
// are arguments of a script as they are.
type bounds struct {
	at   [4]int64
	args [4]any
}

func newCalendar(q throttle.FixedWindowConfig) *calendar { return &calendar{quota: q} }

// boundsAt returns the bounds for a reading of the local clock.
func (c *calendar) boundsAt(now time.Time) *bounds {
	us := now.UnixMicro() + c.clockOffset.Load()
	b := c.cached.Load()
	if b == nil || us < b.at[1] || us >= b.at[2] {
		b = c.bounds(time.UnixMicro(us))
		c.cached.Store(b)
	}
	return b
}

func (c *calendar) bounds(t time.Time) *bounds {
	from, to := c.quota.Window(t)
	before, _ := c.quota.Window(from.Add(-1))
	_, after := c.quota.Window(to)
	b := new(bounds)
	for i, t := range []time.Time{before, from, to, after} {
		b.at[i] = t.UnixMicro()
		b.args[i] = b.at[i]
	}
	return b
}

// setOffset notes that the server's clock showed something outside all windows.
func (c *calendar) setOffset(local time.Time, server int64) {
	c.clockOffset.Store(server - local.UnixMicro())
}

// windowLength returns how long the window is that begins at start, in microseconds.
func (c *calendar) windowLength(start int64) time.Duration {
	if b := c.cached.Load(); b != nil {
		for i, at := range b.at[:3] {
			if at == start {
				return time.Duration(b.at[i+1]-at) * time.Microsecond
			}
		}
	}
	from, to := c.quota.Window(time.UnixMicro(start))
	return to.Sub(from)
}
