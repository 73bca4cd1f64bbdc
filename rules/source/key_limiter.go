package source

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A keyLimiter holds the limit record of one key and its token bucket. A claim that finds a fresh
// record takes no lock.
type keyLimiter struct {
	source *Source
	key    string
	record atomic.Pointer[limitRecord]         // nil before the first lookup
	bucket atomic.Pointer[throttle.Adjustable] // nil before the first limit

	mu      sync.Mutex
	limit   throttle.Limit // limit of the bucket
	running *lookupCall    // nil if no claim looks the key up
}

// A limitRecord is the result of a lookup. It is immutable.
type limitRecord struct {
	kind       recordKind
	limit      throttle.Limit // if kind is limited
	err        error          // if kind is failed
	blameKey   bool           // if kind is failed: other lookups succeed, so the key is the cause
	expires    time.Time      // time of the next lookup
	ttl        time.Duration  // time from the lookup to expires
	generation int64          // generation of the Source at the lookup
}

// hasLimit reports whether the store has a limit for the key.
func (f *limitRecord) hasLimit() bool { return f.kind <= blocked }

type recordKind uint8

const (
	limited recordKind = iota
	unlimited
	blocked // nothing is granted
	missing // the key has no limit of its own
	failed  // the lookup failed, and no earlier one succeeded
)

// Reserve implements throttle.Limiter. If c.Now is zero, a claim that waited for a lookup is
// decided as of the time after the lookup.
func (a *keyLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if c.Ahead = 0; c.DryRun && ctx.Value(mayLookUp{}) == nil {
		return a.state(ctx, c)
	}
	now := c.Now
	if now.IsZero() {
		now = a.source.clock.Now()
	}
	f, waited, err := a.current(ctx, now)
	if err != nil {
		return throttle.Decision{}, err
	}
	if !waited {
		c.Now = now
	}
	if f != nil && f.kind == unlimited {
		return throttle.AllowAll.Reserve(ctx, c)
	}
	if f != nil && f.kind == blocked {
		return a.reject(ctx, c)
	}
	b := a.bucket.Load()
	missing := f != nil && f.kind == missing && !a.source.hasDefault()
	if b == nil || missing {
		return a.decideWithoutBucket(c.Now, f)
	}
	d, err := (*b).Reserve(ctx, c)
	d.Degraded = f == nil || f.kind == failed
	return d, err
}

// state decides on the dry run c by the bucket of the key alone, without a lookup: keyed.Limiter asks whether the key can be
// removed. It can while its bucket is full, because its record can be looked up again.
func (a *keyLimiter) state(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if b := a.bucket.Load(); b != nil {
		return (*b).Reserve(ctx, c)
	}
	return throttle.AllowAll.Reserve(ctx, c)
}

// reject rejects a claim of a key whose limit is 0.
func (a *keyLimiter) reject(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if c.Now.IsZero() {
		c.Now = a.source.clock.Now()
	}
	return throttle.DenyAll.Reserve(ctx, c)
}

// decideWithoutBucket decides a claim of a key without a bucket, given the record of the key. f is
// nil if the key could not be looked up.
func (a *keyLimiter) decideWithoutBucket(now time.Time, f *limitRecord) (throttle.Decision, error) {
	switch {
	case f == nil:
		return a.source.decideWithoutLimit(now, policyBusy, ErrBusy)
	case f.kind == missing:
		return a.source.decideWithoutLimit(now, policyNoLimit, ErrNoLimit)
	case f.blameKey:
		return a.source.decideWithoutLimit(now, policyFailed, f.err)
	}
	return throttle.Decision{}, f.err
}

// Report implements throttle.Limiter.
func (a *keyLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if d.Limit > 0 {
		(*a.bucket.Load()).Report(ctx, c, d, f)
	}
}

// Traits implements throttle.Limiter.
func (*keyLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
