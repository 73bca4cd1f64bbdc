package throttleredis

import (
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A windowUsage is the usageRule of a FixedWindow, or of a SlidingCounter if sliding is set:
// then the units of the previous window count in part. The windows of all hosts begin at the
// same readings of their clocks.
type windowUsage struct {
	config    throttle.FixedWindowConfig
	sliding   bool
	roundDown bool
	cached    atomic.Pointer[usageWindow]
}

// A usageWindow is a window in nanoseconds since the Unix epoch, including start but not end.
type usageWindow struct{ start, end int64 }

func (w *windowUsage) unit() int64 { return 1 }

func (w *windowUsage) full() int64 { return w.config.Count }

func (w *windowUsage) restored(time.Duration) int64 { return 0 }

func (w *windowUsage) paysBack() bool { return false }

// at returns the window that contains now.
func (w *windowUsage) at(now int64) usageWindow {
	if c := w.cached.Load(); c != nil && now >= c.start && now < c.end {
		return *c
	}
	from, to := w.config.Window(time.Unix(0, now))
	c := &usageWindow{from.UnixNano(), to.UnixNano()}
	w.cached.Store(c)
	return *c
}

// reading returns given, or the latest reading at which a claim was granted if that is
// later. After a time without a grant as long as a window, an older reading means that the
// clock was set back.
func (w *windowUsage) reading(r *usageRecord, given int64, elapsed time.Duration) int64 {
	if given < r.last && elapsed-r.grantedAt < w.length(r.last) {
		return r.last
	}
	return given
}

func (w *windowUsage) length(now int64) time.Duration {
	v := w.at(now)
	return time.Duration(v.end - v.start)
}

// in returns what c counts in the window v and in the one before it. The clock of the host
// may be ahead, so that c is in the window after v.
func (w *windowUsage) in(c *usageCounter, v usageWindow) (current, previous int64) {
	switch c.window {
	case v.start:
		return c.units, c.previous
	case v.end:
		return c.previous, 0
	case v.start - (v.end - v.start):
		return 0, c.units
	}
	return 0, 0
}

// A windowSum is what hosts have taken in a window and in the one before it.
type windowSum struct{ current, previous int64 }

// add adds the counter c.
func (s *windowSum) add(w *windowUsage, c *usageCounter, v usageWindow) {
	current, previous := w.in(c, v)
	s.current, s.previous = ticks.Add(s.current, max(current, 0)), ticks.Add(s.previous, max(previous, 0))
}

// sums returns what all hosts, and what those that are reachable, have taken.
func (w *windowUsage) sums(r *usageRecord, v usageWindow, h hostCounts) (all, reachable windowSum) {
	all.add(w, &r.own, v)
	reachable = all
	for i := range r.peers {
		k := &r.peers[i]
		all.add(w, &k.usageCounter, v)
		if h.reaches(k.peer) {
			reachable.add(w, &k.usageCounter, v)
		}
	}
	return all, reachable
}

// used returns the units of s that count at now.
func (w *windowUsage) used(s windowSum, v usageWindow, now int64) int64 {
	if !w.sliding {
		return s.current
	}
	weight := ticks.MulDivUp
	if w.roundDown {
		weight = ticks.MulDivDown
	}
	return ticks.Add(s.current, weight(s.previous, max(v.end-max(now, v.start), 0), v.end-v.start))
}

func (w *windowUsage) left(r *usageRecord, now int64, h hostCounts) (left, used int64) {
	v := w.at(now)
	all, reachable := w.sums(r, v, h)
	used = w.used(all, v, now)
	left = ticks.Sub(w.config.Count, used)
	if h.share && h.reachable < h.all {
		left = min(left, max(h.part(w.config.Count), 1)-w.used(reachable, v, now))
	}
	return left, used
}

func (w *windowUsage) wait(r *usageRecord, now, amount int64, h hostCounts) time.Duration {
	v := w.at(now)
	all, _ := w.sums(r, v, h)
	if most := w.config.Count - amount; w.used(all, v, now) > most {
		return w.waitUntilAtMost(all, v, most, now)
	}
	return time.Duration(v.end - now) // the part of this host is used
}

// waitUntilAtMost returns the time after now at which most units count.
func (w *windowUsage) waitUntilAtMost(s windowSum, v usageWindow, most, now int64) time.Duration {
	per := v.end - v.start
	if !w.sliding {
		return time.Duration(v.end - now)
	}
	start, previous, free := v.start, s.previous, most-s.current
	if free < 0 { // not in this window; in the next one its units are the previous ones
		start, previous, free = v.end, s.current, most
	}
	fades := int64(0) // after start
	switch {
	case previous <= free:
	case w.roundDown: // rounded down, it fits while it is less than free plus 1
		fades = per - (ticks.MulDivUp(free+1, per, previous) - 1)
	default:
		fades = per - ticks.MulDivDown(free, per, previous)
	}
	return time.Duration(max(start+fades-now, 0))
}

// enter begins the window v in the own counter.
func (w *windowUsage) enter(r *usageRecord, v usageWindow) {
	if r.own.window != v.start {
		_, previous := w.in(&r.own, v)
		r.own = usageCounter{window: v.start, previous: previous}
	}
}

func (w *windowUsage) take(r *usageRecord, amount, now int64, _ hostCounts) uint64 {
	w.enter(r, w.at(now))
	r.own.units += amount
	return uint64(r.own.window)
}

// adjust changes the count of the window in which the claim was granted, as long as it counts.
func (w *windowUsage) adjust(r *usageRecord, grant uint64, extra, _, now int64, _ hostCounts) bool {
	v := w.at(now)
	if !w.sliding && int64(grant) != v.start {
		return false
	}
	w.enter(r, v)
	switch int64(grant) {
	case v.start:
		r.own.units = max(ticks.Add(r.own.units, extra), 0)
	case v.start - (v.end - v.start):
		r.own.previous = max(ticks.Add(r.own.previous, extra), 0)
	default:
		return false
	}
	return true
}

// merge does nothing: the counter is replaced by that of i.
func (w *windowUsage) merge(*usageRecord, *peerUsage, usageItem, int64, hostCounts) {}

// counts also reports true for the counter of a host whose clock is ahead.
func (w *windowUsage) counts(i usageItem, now int64) bool {
	current, previous := w.in(&i.counter, w.at(now))
	return current != 0 || previous != 0 || i.counter.window > now
}

func (w *windowUsage) state(r *usageRecord, _ int64, _ hostCounts) (usageCounter, int64) {
	return r.own, 0
}

// maxSkew is for how long counts of an ended window are kept for hosts whose clocks are behind.
const maxSkew = int64(10 * time.Second)

func (w *windowUsage) unused(r *usageRecord, now int64, h hostCounts) bool {
	v := w.at(now)
	all, _ := w.sums(r, v, h)
	if w.sliding {
		return w.used(all, v, now) == 0
	}
	return all.current == 0 && (all.previous == 0 || now-v.start >= min(maxSkew, v.end-v.start))
}
