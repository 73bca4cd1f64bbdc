package throttleredis

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

const (
	maxCachedKeys     = 1 << 13 // keys whose rejections are remembered; a power of two
	maxCachedKeyBytes = 512     // of a key whose rejections are remembered
)

// CacheRejections returns a limiter that asks l, and repeats a rejection for equal claims of the
// same key without asking l again: for as long as Decision.Wait of the rejection, but no longer
// than maxAge. A client that sends requests beyond its limit then causes one round trip in each
// maxAge, and not one for each request. Wrap the Fallback of a limit, and not the limit inside of it:
//
//	limit := throttleredis.CacheRejections(&throttleredis.Fallback{Limiter: l, Processes: 4}, time.Second)
//
// Only time can make l grant a claim that it has just rejected, with four exceptions: another
// process returns units of the key, because a claim was Unused or cost less than was claimed; the
// numbers of the limit change; the key is deleted in Redis; or the clock of the server is set
// forward. After these the key is rejected for up to maxAge longer than by l. Units that are
// returned through this limiter take effect immediately. Remaining is that of the first rejection.
//
// It always asks l about a claim with DryRun, Waits or Ahead, and if l is in memory, holds units
// until claims end, as a Concurrency limit does, or counts rejections. While a ban of Store.Ban
// lasts, rejections are not counted, and are repeated. A Degraded rejection is not repeated. About
// 8,000 keys of at most 512 bytes are remembered.
//
// CacheRejections panics if l is nil or maxAge is not positive.
func CacheRejections(l throttle.Limiter, maxAge time.Duration) throttle.Limiter {
	switch {
	case l == nil:
		panic("throttleredis: CacheRejections: the limiter is nil")
	case maxAge <= 0:
		panic("throttleredis: CacheRejections: maxAge is " + maxAge.String() + ": it must be positive")
	}
	return &rejectionCache{Limiter: l, maxAge: maxAge, ban: banName(l), seed: maphash.MakeSeed()}
}

// A rejectionCache is a limiter of CacheRejections. A key has one slot, which it shares with
// others: the latest rejection stays.
type rejectionCache struct {
	throttle.Limiter
	maxAge time.Duration
	ban    string // name of the ban; "": none
	seed   maphash.Seed
	slots  [maxCachedKeys]atomic.Pointer[cachedRejection]
}

// A cachedRejection is a rejection of a key. It is not changed.
type cachedRejection struct {
	key      string
	units    int64 // 0: nothing is known of the key
	decision throttle.Decision
	received time.Time // Wait of decision counts from it
	from, to time.Time // when decision is repeated
}

// Reserve implements throttle.Limiter.
func (a *rejectionCache) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil || c.DryRun || c.Waits || c.Ahead != 0 || len(c.Key) > maxCachedKeyBytes {
		return a.Limiter.Reserve(ctx, c)
	}
	slot, sent := a.slot(c.Key), readingOf(c)
	old := slot.Load()
	if old != nil && old.units == n && old.key == c.Key && !sent.Before(old.from) && sent.Before(old.to) {
		return old.at(sent), nil
	}
	d, err := a.Limiter.Reserve(ctx, c)
	if err != nil || !a.repeats(&d) {
		return d, err
	}
	r := &cachedRejection{key: strings.Clone(c.Key), units: n, decision: d, received: readingOf(c), from: sent}
	r.to = sent.Add(min(a.maxAge, certainWait(d.Wait)))
	slot.CompareAndSwap(old, r) // fails if units have been returned since
	return d, nil
}

// Report implements throttle.Limiter.
func (a *rejectionCache) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	a.Limiter.Report(ctx, c, d, f)
	if f.ExtraCost(c, d) < 0 {
		a.slot(c.Key).Store(new(cachedRejection)) // a new one each time, so that CompareAndSwap fails
	}
}

func (a *rejectionCache) slot(key string) *atomic.Pointer[cachedRejection] {
	return &a.slots[maphash.String(a.seed, key)%maxCachedKeys]
}

// repeats reports whether d is a rejection that the limiter would repeat, whatever other claims
// it decides on, until its Wait is over.
func (a *rejectionCache) repeats(d *throttle.Decision) bool {
	if d.OK || d.Degraded || d.Wait <= 0 {
		return false
	}
	t := a.Traits()
	return !t.NonBlocking && t.EndsAtResponse && (!t.CountsRejected || a.ban != "" && d.Policy == a.ban)
}

// at returns the decision for a later reading of the clock.
func (r *cachedRejection) at(now time.Time) throttle.Decision {
	d, elapsed := r.decision, max(now.Sub(r.received), 0)
	d.At = d.At.Add(elapsed)
	if d.Wait != throttle.Forever {
		d.Wait = max(d.Wait-elapsed, 1)
	}
	if d.Expected > 0 {
		d.Expected = max(d.Expected-elapsed, 1)
	}
	d.ResetAfter = max(d.ResetAfter-elapsed, 0)
	return d
}

// certainWait returns the part of wait in which no clock says that it is over: a clock that is
// adjusted runs up to 0.05 % faster than another, and waits are rounded.
func certainWait(wait time.Duration) time.Duration { return wait - wait/512 - time.Millisecond }

// readingOf returns the reading of the clock of c.
func readingOf(c throttle.Claim) time.Time {
	if c.Now.IsZero() {
		return time.Now()
	}
	return c.Now
}

// banName returns the name of the ban of l if l is one of Store.Ban and its limits have other names.
func banName(l throttle.Limiter) string {
	if f, ok := l.(*Fallback); ok {
		l = f.Limiter
	}
	b, ok := l.(*banned)
	if !ok || slices.ContainsFunc(b.inner.limits, func(i *Limiter) bool { return i.limit.policy == b.config.Name }) {
		return ""
	}
	return b.config.Name
}
