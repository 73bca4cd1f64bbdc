package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// TokenBucket limits to a steady rate with a burst. It starts full; units flow
// back evenly, not in steps.
//
// Instead of a count of tokens it keeps one number, tat (the theoretical arrival
// time of the generic cell rate algorithm, ITU-T I.371): the moment at which the
// bucket would be full again if nothing more were asked.
//
//	          |<-------------- window = burst*interval -------------->|
//	──────────+───────────────────────────+──────────────────────────+──▶ time
//	         now                         tat                     now+window
//	          |<----- already taken ----->|<------ still free ------>|
//
// A claim of n units moves tat right by n intervals, and is refused if that would
// push tat past now+window. Time itself refills the bucket: as now moves right
// the taken part shrinks, and no goroutine puts tokens back. A tat in the past
// means full, however far in the past it is.
//
// Invariant: within any span W no more than burst + rate*W units are granted and
// kept, to the unit: see TestTokenBucket_usageObeysLimit.
//
// The odd case is a rate like 3 a second, whose interval is no whole number of
// nanoseconds. Time is therefore counted in ticks of 1/scale nanoseconds, chosen
// so that interval and rate are both whole: see internal/gcra.
//
// TokenBucket does not book ahead: one number cannot tell booked units from used
// ones, so a booking could not be cancelled safely. LeakyBucket books ahead.
type TokenBucket struct {
	clocked
	state atomic.Pointer[bucketState]
	mu    sync.Mutex // held while one era is replaced by the next
}

// NewTokenBucket returns a full bucket. A nil clk is the system clock. It panics
// if l is invalid; call l.Validate first if its numbers come from outside.
func NewTokenBucket(l Limit, clk Clock) *TokenBucket {
	must(l.Validate(), "NewTokenBucket")
	b := &TokenBucket{clocked: clocked{ticks.NewTimeline(clk)}}
	b.state.Store(newBucketState(l, 0))
	return b
}

// Reserve implements Limiter.
func (b *TokenBucket) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, err := c.Units()
	if err != nil {
		return d, err
	}
	given := b.time.Read(c.Now)
	e, now, taken, wait := b.take(n, given, c.DryRun)
	// Filled in where the caller wants it: to copy a Decision costs as much as to
	// decide.
	d.OK, d.Wait, d.Policy = wait == 0, wait, e.policy
	d.At = b.time.Stamp(now, given, c.Now)
	d.Limit, d.Per = e.Burst, e.RefillTime
	d.Remaining, d.ResetAfter = e.State(taken)
	d.Grant = e.version
	return d, nil
}

// take takes n units as of given, or of the latest grant if that is newer. It
// returns the era and the reading that it decided on, how many ticks are taken from
// the window then, and how long to wait if the units were not there.
func (b *TokenBucket) take(n, given int64, dry bool) (e *bucketState, now, taken int64, wait time.Duration) {
	for {
		e = b.state.Load()
		old := e.tat.Load()
		if old == gcra.Closed {
			b.waitReplaced()
			continue
		}
		now = max(given, e.last.Load())
		takes := !dry && n <= e.Burst
		switch covered := e.Covers(now); {
		case !covered && takes:
			b.replace(e, e.limit, now)
			continue
		case !covered: // what only asks must not end an era: others may still claim before now
			e = e.next(e.limit, now, old)
			old = e.tat.Load()
		}
		tick := e.Ticks(now)
		taken = max(old, tick) - tick
		if n > e.Burst {
			return e, now, taken, Forever
		}
		cost := n * e.Interval
		if wait = e.Duration(taken + cost - e.Window); wait > 0 || !takes {
			return e, now, taken, wait
		}
		if e.tat.CompareAndSwap(old, tick+taken+cost) {
			e.recordGrant(now)
			return e, now, taken + cost, 0
		}
	}
}

// Cancel implements Limiter.
//
// It gives back less the longer the units were held. Had they not been taken, a
// full bucket would have stayed full and what flowed in meanwhile would have been
// lost, so time has already given that much back. To subtract the whole cost
// instead looks right and lets in more than the limit: see
// TestTokenBucket_usageObeysLimit.
func (b *TokenBucket) Cancel(_ context.Context, c Claim, d Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		b.adjust(-n, c.Now, d)
	}
}

// Observe implements Observer: it settles a cost that was known only afterwards.
// What the claim cost less comes back as in Cancel; what it cost more is taken,
// if need be from units that are still to flow in.
func (b *TokenBucket) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		b.adjust(extra, f.Now, d)
	}
}

// SetLimit replaces the limit. The units in the bucket stay, down to the fraction,
// as far as the new burst has room for them: raising the burst adds none. The
// error is that of l.Validate, and then nothing has changed.
func (b *TokenBucket) SetLimit(l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	for {
		e := b.state.Load()
		now := max(b.time.Read(time.Time{}), e.last.Load())
		if b.replace(e, l, now) {
			return nil
		}
	}
}

// adjust takes n more units for the claim that d granted, or gives back -n.
func (b *TokenBucket) adjust(n int64, asOf time.Time, d Decision) {
	given, from := b.time.Read(asOf), b.time.Read(d.At)
	for {
		e := b.state.Load()
		now := max(given, e.last.Load(), from)
		if n > 0 && !e.Covers(now) {
			b.replace(e, e.limit, now)
			continue
		}
		old := e.tat.Load()
		if old == gcra.Closed {
			b.waitReplaced()
			continue
		}
		var next int64
		if n < 0 {
			left := ticks.Sub(ticks.Mul(-n, e.Interval), e.refilledSince(d.Grant, from, now))
			next = ticks.Sub(old, max(left, 0))
		} else {
			next = min(ticks.Add(max(old, e.Ticks(now)), ticks.Mul(n, e.Interval)), gcra.MaxTicks)
		}
		if e.tat.CompareAndSwap(old, next) {
			return
		}
	}
}

// replace ends era e at now and begins one with limit l. It reports false if e
// had ended already.
//
// Whoever still holds e finds its tat closed, so no grant can be made against
// numbers that no longer hold, and none that was made is lost.
func (b *TokenBucket) replace(e *bucketState, l Limit, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() != e {
		return false
	}
	b.state.Store(e.next(l, now, e.tat.Swap(gcra.Closed)))
	return true
}

// waitReplaced returns when the era that is being replaced has been.
func (b *TokenBucket) waitReplaced() {
	b.mu.Lock()
	//lint:ignore SA2001 empty on purpose: replace holds it until the new era is there
	b.mu.Unlock()
}
