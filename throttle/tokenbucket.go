package throttle

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

type tokenBucket struct {
	clocked
	state      atomic.Pointer[bucketState]
	mu         sync.Mutex   // held while one bucketState is replaced by the next
	lastBooked atomic.Int64 // latest reading at which a claim granted by ReserveAhead may start; ticks.Never: none
}

// NewTokenBucket returns a limiter of a steady rate with a burst. It starts full; units are restored
// continuously, not in steps.
//
// Instead of a count of tokens it keeps one number, tat, the theoretical arrival time of
// the generic cell rate algorithm (ITU-T I.371): the time at which the bucket is full again.
//
//	          |<-------------- window = burst*interval -------------->|
//	──────────+───────────────────────────+──────────────────────────+──▶ time
//	         now                         tat                     now+window
//	          |<----- already taken ----->|<------ available ------->|
//
// A claim of n units increases tat by n intervals, and is rejected if that would exceed
// now+window. A tat in the past means that the bucket is full. ReserveAhead books units that
// are not restored yet: it increases tat beyond now+window.
//
// Invariant: within any span W no more than burst + rate*W units are granted and kept. This is
// exact also for rates such as 3 per second, whose interval is not a whole number of
// nanoseconds. The waits of ReserveAhead are rounded up to whole nanoseconds, so two claims may
// be used up to one nanosecond closer together.
//
// Limitations: after ReserveAhead, an Unused claim returns fewer units than possible: those that
// the limit restores between the start of the claim and that of the latest one ever booked are
// lost. NewLeakyBucket returns exactly what can be used again.
//
// Report returns no units of a claim that was granted before the latest SetLimit.
//
// SetLimit keeps the units in the bucket, including fractions, up to the new burst: raising the burst adds none.
//
// It panics if l is invalid.
func NewTokenBucket(l Limit) Adjustable {
	must(l.Validate(), "NewTokenBucket")
	b := &tokenBucket{clocked: clocked{ticks.NewTimeline()}}
	b.state.Store(newBucketState(l, 0))
	b.lastBooked.Store(ticks.Never)
	return b
}

func (b *tokenBucket) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n := cmp.Or(c.Cost, 1) // not Claim.Units, which copies c
	if n < 0 {
		return d, ErrCost
	}
	given := b.time.Read(c.Now)
	e, now, taken, wait, ok := b.take(n, given, c.Ahead, c.DryRun)
	// Writes to the caller's Decision: copying a Decision takes as long as deciding.
	d.OK, d.Wait, d.Policy = ok, wait, e.policy
	d.At = b.time.Stamp(now, given, c.Now)
	d.Limit, d.Per = e.Burst, e.RefillTime
	d.Remaining, d.ResetAfter = e.State(taken)
	d.Grant = e.version
	d.setFresh(&c)
	return d, nil
}

// take takes n units as of given, or of the latest grant if that is later, for a claim that
// may start up to maxWait after that. It returns the bucketState and the reading on which it
// decided, the number of ticks then taken from the window, and Decision.Wait and OK.
func (b *tokenBucket) take(n, given int64, maxWait time.Duration, dry bool) (e *bucketState, now, taken int64, wait time.Duration, ok bool) {
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
		case !covered: // a dry run or rejection must not replace the state: other claims may still be decided before now
			e = e.next(e.limit, now, old)
			old = e.tat.Load()
		}
		tick := e.Ticks(now)
		taken = max(old, tick) - tick
		if n > e.Burst {
			return e, now, taken, Forever, false
		}
		cost, longest := n*e.Interval, int64(0)
		if maxWait > 0 {
			longest = min(ticks.Mul(int64(maxWait), e.Scale), gcra.MaxTicks/2-e.Window)
		}
		short := taken + cost - e.Window
		if short > longest {
			return e, now, taken, e.Duration(short - longest), false
		}
		if wait = e.Duration(short); !takes {
			return e, now, taken, wait, true
		}
		if wait > 0 {
			ticks.StoreMax(&b.lastBooked, ticks.Add(now, int64(wait))) // before tat, so that no Report misses it
		}
		if e.tat.CompareAndSwap(old, tick+taken+cost) {
			ticks.StoreMax(&e.last, now)
			return e, now, taken + cost, wait, true
		}
	}
}

// Report implements Limiter. If the claim cost less than claimed, the difference is returned,
// less the units that were restored since the grant: a bucket that had stayed full would not
// have gained those, see TestTokenBucket_usageObeysLimit. If it cost more, the difference is
// taken, if necessary from units that are not restored yet.
func (b *tokenBucket) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	n := f.ExtraCost(c, d)
	if n == 0 {
		return
	}
	given, from := b.time.Read(f.Now), ticks.Add(b.time.Read(d.At), int64(d.Wait))
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
			if d.Grant != e.version {
				return
			}
			restored := ticks.Mul(ticks.Sub(max(now, b.lastBooked.Load()), from), e.Scale)
			next = ticks.Sub(old, max(ticks.Sub(ticks.Mul(-n, e.Interval), restored), 0))
		} else {
			next = min(ticks.Add(max(old, e.Ticks(now)), ticks.Mul(n, e.Interval)), gcra.MaxTicks)
		}
		if e.tat.CompareAndSwap(old, next) {
			return
		}
	}
}

func (*tokenBucket) Traits() Traits { return bookingTraits(true) }

// Limit returns the limit in force.
func (b *tokenBucket) Limit() Limit { return b.state.Load().limit }

func (b *tokenBucket) SetLimit(l Limit) error { return b.SetLimitAt(time.Time{}, l) }

// SetLimitAt is SetLimit as of now. A zero now is read from the clock.
func (b *tokenBucket) SetLimitAt(now time.Time, l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	given := b.time.Read(now)
	for {
		e := b.state.Load()
		if b.replace(e, l, max(given, e.last.Load())) {
			return nil
		}
	}
}

// replace replaces e at now by a bucketState with limit l. It reports false if e had
// already been replaced. It sets the tat of e to gcra.Closed, so that the CAS of a goroutine
// that still uses e fails: no claim is granted by the old limit, and no grant is lost.
func (b *tokenBucket) replace(e *bucketState, l Limit, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() != e {
		return false
	}
	b.state.Store(e.next(l, now, e.tat.Swap(gcra.Closed)))
	return true
}

// waitReplaced waits until the replacement of the bucketState is complete.
func (b *tokenBucket) waitReplaced() {
	b.mu.Lock()
	b.mu.Unlock() //nolint:staticcheck // empty on purpose: replace holds it until the new era is there
}
