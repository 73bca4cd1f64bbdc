package sketch

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limiter limits each of millions of clients in a memory that does not grow with them.
// It keeps no entry per client, only counts that clients share, so that it may take one
// to have used more than it has, and never less.
//
// A Bloom filter is in front and holds the first unit of each client; a count-min
// sketch behind it holds the others. So the many who come once do not fill the counters
// of the few who stay. Both come in two panes, the current window and the one before:
//
//	    before                   current
//	├────────────────────────┼─────┬──────────────────┤
//	│ 1 if in filter + count │ 1 if in filter + count │
//	      |<------ last Per ------>|
//	          3/4 of it           now      plus all of this
//
// Invariant: within one window, which is one Per long and counted from the Unix epoch,
// no client gets more than Count units; within any span as long as a window, less than
// twice that (see throttle.SlidingCounter, which this is but for errors). A client that
// would be granted a claim by exact counts is refused it with a chance of no more than
// ErrorRate, as long as no more clients come than were planned for. More clients raise
// that chance and nothing else: see TestLimiter_refusesFewWrongly.
//
// The odd case is the first unit of a client. The filter cannot forget it, so that it
// stays taken when the claim is cancelled, until the window no longer counts.
//
// What is taken in a window is added to counters without regard to what they hold, not
// conservatively as CountMin does, since only that can be given back by Cancel.
//
// It does not book ahead. Clients whose keys lie far from each other do not wait for
// each other.
type Limiter struct {
	time       ticks.Timeline
	offset     int64 // of the timeline's start, from the Unix epoch
	limit      throttle.Limit
	policy     string
	seed       uint64
	windows    windows
	baseWindow uint64 // the window of start, from which Grant counts
	locks      stripes
	filter     bitTable
	counters   counterTable
}

// NewLimiter returns an unused limiter. A nil clk is the system clock. It panics if p is
// invalid; call p.Validate first if its numbers come from outside.
func NewLimiter(p LimiterConfig, clk throttle.Clock) *Limiter {
	if err := p.Validate(); err != nil {
		panic(err.Error() + " (NewLimiter)")
	}
	r := p.dimensions()
	blocks, lines := max(int(r.blocks), 1), max(int(r.lines), 1)
	l := &Limiter{time: ticks.NewTimeline(clk), limit: p.Limit, policy: p.Name, seed: seedOrRandom(p.Seed)}
	if l.policy == "" {
		l.policy = p.String()
	}
	l.windows, l.offset = windows{int64(p.Per)}, l.time.SinceEpoch()
	l.baseWindow = l.windows.at(l.offset).window
	l.locks = stripesFor(min(blocks, lines))
	l.filter = bitTable{newTable(l.locks.roundToStripes(blocks, p.Bytes > 0), bitWidth), r.bitsPerWord}
	l.counters = newCounterTable(l.locks.roundToStripes(lines, p.Bytes > 0), p.counterBits())
	return l
}

// Reserve implements throttle.Limiter.
func (l *Limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	now := l.time.Read(c.Now)
	h := hash(c.Key, l.seed)
	lock := l.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	at, m := l.time.At(now), l.windows.at(ticks.Add(now, l.offset))
	if newest := max(l.filter.latestWindow(h), l.counters.latestWindow(h)); m.window < newest {
		m = m.notBefore(newest)
		at = epoch.Add(time.Duration(l.windows.nanoseconds(m)))
	}
	u := l.usageOf(h, m)
	d := throttle.Decision{Policy: l.policy, At: at, Limit: l.limit.Count, Per: l.limit.Per}
	d.Wait = l.wait(u, n)
	if d.OK = d.Wait == 0; d.OK && !c.DryRun {
		d.Grant = l.take(h, u, n)
		u.current += n
	}
	d.Remaining = max(l.limit.Count-l.windows.weightedCount(u.previous, u.offset)-u.current, 0)
	d.ResetAfter = l.wait(u, l.limit.Count)
	return d, nil
}

// Cancel implements throttle.Limiter. It gives back nothing once the window that the
// units came from no longer counts.
func (l *Limiter) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		first := int64(d.Grant & 1)
		l.adjust(c.Key, first-n, d)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only
// afterwards, as long as the window that the units came from counts. A debt is kept up
// to where a counter ends, which is at least twice the limit.
func (l *Limiter) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if n, err := c.Units(); err == nil && d.OK && !f.Partial && f.Cost > 0 {
		l.adjust(c.Key, f.Cost-n, d)
	}
}

// ErrorRate returns the chance that a client is taken to have used more than it has, if
// so many clients are granted something in each window, and so many of them take more
// than one unit.
func (l *Limiter) ErrorRate(clients, returning int64) float64 {
	bloom := l.filter.rate(float64(clients))
	counted := float64(returning) + bloom*float64(clients)
	return min(2*max(bloom, failureProbability(counted/float64(l.counters.slots), combinationsFor(l.counters.bits))), 1)
}

// Bytes returns how much memory the clients take, all together.
func (l *Limiter) Bytes() int64 { return l.filter.bytes() + l.counters.bytes() }

// usage is what a client is taken to have used.
type usage struct {
	instant
	inFilter          bool // it seems to have come in the current window
	current, previous int64
}

func (l *Limiter) usageOf(h uint64, m instant) usage {
	u := usage{instant: m, inFilter: l.filter.has(h, m.window)}
	if u.inFilter {
		u.current = 1 + int64(l.counters.minimum(h, m.window))
	}
	if l.filter.has(h, m.window-1) {
		u.previous = 1 + int64(l.counters.minimum(h, m.window-1))
	}
	return u
}

// take takes n units and returns what Grant says of it: the window, counted from base,
// and in the lowest bit whether the filter holds one of the units.
func (l *Limiter) take(h uint64, u usage, n int64) (grant uint64) {
	if !u.inFilter {
		l.filter.set(h, u.window)
		n, grant = n-1, 1
	}
	if n > 0 {
		l.counters.add(h, u.window, uint64(n))
	}
	return (u.window-l.baseWindow)<<1 | grant
}

// adjust takes n more units in the window that d came from, or gives back -n.
func (l *Limiter) adjust(key string, n int64, d throttle.Decision) {
	window := l.baseWindow + uint64(int64(d.Grant)>>1)
	h := hash(key, l.seed)
	lock := l.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	switch {
	case n < 0:
		l.counters.subtract(h, window, uint64(-n))
	case n > 0 && l.counters.line(h, window)[0] <= window:
		l.counters.add(h, window, uint64(n))
	}
}

// wait returns how long after now a claim of n units would be granted, if nothing was
// taken in between; 0 if it is granted now.
func (l *Limiter) wait(u usage, n int64) time.Duration {
	if n > l.limit.Count {
		return throttle.Forever
	}
	available, ends := l.limit.Count-n, l.windows.per-u.offset
	switch {
	case l.windows.weightedCount(u.previous, u.offset)+u.current <= available:
		return 0
	case u.current <= available: // in this window
		return time.Duration(l.windows.decayTime(u.previous, available-u.current) - u.offset)
	}
	return time.Duration(ends + l.windows.decayTime(u.current, available)) // in the next
}
