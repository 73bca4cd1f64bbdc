package sketch

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limiter limits each of millions of clients, in memory that does not grow with the number of
// clients. It has no entry per client, only counters that clients share, so it may overestimate
// what a client has used, and never underestimates it.
//
// A Bloom filter stores the first unit of each client, and a count-min sketch stores the others.
// Clients that send one request therefore do not fill the counters of clients that send many. Both
// are kept for two windows, the current and the previous one:
//
//	    previous                 current
//	├────────────────────────┼─────┬──────────────────┤
//	│ 1 if in filter + count │ 1 if in filter + count │
//	      |<------ last Per ------>|
//	          3/4 of it           now      plus all of this
//
// Invariant: within one window, which is one Per long and counted from the Unix epoch, a client
// gets at most Count units; within any span of the length of a window, less than twice as many.
// This is the algorithm of throttle.NewSlidingCounter with estimated counts. A claim that exact
// counts would grant is rejected with a probability of at most ErrorRate, as long as there are no
// more clients than configured. More clients only increase that probability: see
// TestLimiter_rejectsFewWrongly. A client that makes up keys is such a crowd: limit keys that clients
// cannot choose, such as authenticated users, or networks in addition, or use package keyed.
//
// Limitations: the Bloom filter cannot remove the first unit of a client. If its claim is
// canceled, the unit stays taken until its window no longer counts.
//
// Within a window units are added to all counters of a client, not conservatively as in CountMin,
// because a conservative update cannot be reversed.
//
// Limiter grants no units in advance. Each lock guards a part of the keys, so that
// most clients do not wait for each other.
type Limiter struct {
	time       ticks.Timeline
	offset     int64 // of the timeline's start since the Unix epoch, in nanoseconds
	limit      throttle.Limit
	policy     string
	seed       uint64
	windows    windows
	baseWindow uint64 // the window of start; Decision.Grant counts windows from it
	locks      stripes
	filter     bitTable
	counters   counterTable
}

// NewLimiter returns an unused limiter. It panics if p is invalid; call p.Validate
// first if its numbers come from configuration.
func NewLimiter(p LimiterConfig) *Limiter {
	if err := p.Validate(); err != nil {
		panic(err.Error() + " (NewLimiter)")
	}
	r := p.dimensions()
	blocks, lines := max(int(r.blocks), 1), max(int(r.lines), 1)
	l := &Limiter{time: ticks.NewTimeline(), limit: p.Limit, policy: p.Limit.Name, seed: seedOrRandom(p.Seed)}
	if l.policy == "" {
		l.policy = p.Limit.String()
	}
	l.windows = windows{int64(p.Limit.Per)}
	l.setOffset()
	l.locks = stripesFor(min(blocks, lines))
	l.filter = bitTable{newTable(l.locks.roundToStripes(blocks, p.Bytes > 0), bitWidth), r.bitsPerWord}
	l.counters = newCounterTable(l.locks.roundToStripes(lines, p.Bytes > 0), p.counterBits())
	return l
}

// SetClock replaces the clock; see throttle.WithClock.
func (l *Limiter) SetClock(c throttle.Clock) {
	l.time.SetClock(c)
	l.setOffset()
}

func (l *Limiter) setOffset() {
	l.offset = l.time.SinceEpoch()
	l.baseWindow = l.windows.at(l.offset).window
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
	d.Fresh = c.DryRun && d.Remaining == d.Limit && d.ResetAfter == 0
	return d, nil
}

// Report implements throttle.Limiter. It corrects the cost of a claim to f.Cost, as long as the
// window of the claim counts. A cost beyond the limit is recorded up to the maximum of a counter,
// which is at least twice the limit.
func (l *Limiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	switch extra := f.ExtraCost(c, d); {
	case extra == 0:
	case f.State == throttle.Unused: // the first unit of a client is in the filter, which can't be reversed
		l.adjust(c.Key, extra+int64(d.Grant&1), d)
	default:
		l.adjust(c.Key, extra, d)
	}
}

// Traits implements throttle.Limiter.
func (*Limiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// ErrorRate returns the probability that the use of a client is overestimated, if the given number
// of clients is granted something in each window, and returning of them take more than one unit.
func (l *Limiter) ErrorRate(clients, returning int64) float64 {
	bloom := l.filter.rate(float64(clients))
	counted := float64(returning) + bloom*float64(clients)
	return min(2*max(bloom, failureProbability(counted/float64(l.counters.slots), combinationsFor(l.counters.bits))), 1)
}

// Bytes returns the memory for all clients in bytes.
func (l *Limiter) Bytes() int64 { return l.filter.bytes() + l.counters.bytes() }

// usage is the estimated use of a client.
type usage struct {
	instant
	inFilter          bool // the filter contains the client in the current window
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

// take takes n units and returns the Decision.Grant for them: the window, counted from baseWindow,
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

// adjust takes n more units in the window of d, or returns -n units if n is negative.
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

// wait returns the time until a claim of n units would be granted, if no other claim is. It
// returns 0 if the claim is granted now.
func (l *Limiter) wait(u usage, n int64) time.Duration {
	if n > l.limit.Count {
		return throttle.Forever
	}
	available, ends := l.limit.Count-n, l.windows.per-u.offset
	switch {
	case l.windows.weightedCount(u.previous, u.offset)+u.current <= available:
		return 0
	case u.current <= available: // granted within this window
		return time.Duration(l.windows.decayTime(u.previous, available-u.current) - u.offset)
	}
	return time.Duration(ends + l.windows.decayTime(u.current, available)) // granted in the next window
}
