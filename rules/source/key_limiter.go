package source

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A keyLimiter is what a Source knows of one key, and what the key has used. Whoever
// finds something that is not too old takes no lock.
type keyLimiter struct {
	source *Source
	key    string
	record atomic.Pointer[limitRecord]          // nil: nothing is known
	bucket atomic.Pointer[throttle.TokenBucket] // nil: it had no limit yet

	mu         sync.Mutex
	limit      throttle.Limit // of the bucket
	lookupDone chan struct{}  // closed when the lookup that is under way has ended; nil: none is
}

// A limitRecord is what is known of a key. It never changes.
type limitRecord struct {
	kind       recordKind
	limit      throttle.Limit // of kind limited
	err        error          // of kind failed
	blameKey   bool           // of kind failed: other lookups succeed, so the key is the cause
	expires    time.Time      // when to ask again
	ttl        time.Duration  // until then, from when it was asked for
	generation int64          // of the Source at that time
}

type recordKind uint8

const (
	limited recordKind = iota
	unlimited
	missing // the key has no limit of its own
	failed  // and nothing was known before
)

// Reserve implements throttle.Limiter. The time that a lookup takes counts, unless the
// caller says what time it is.
func (a *keyLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
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
	b := a.bucket.Load()
	missing := f != nil && f.kind == missing && !a.source.hasDefault()
	if b == nil || missing {
		return a.decideWithoutBucket(c.Now, f)
	}
	d, err := b.Reserve(ctx, c)
	d.Degraded = f == nil || f.kind == failed
	return d, err
}

// decideWithoutBucket decides a claim for which there is no bucket, given what is known of the
// key.
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

// Cancel implements throttle.Limiter. What nothing was taken for is nothing to give back.
func (a *keyLimiter) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if d.Limit > 0 {
		a.bucket.Load().Cancel(ctx, c, d)
	}
}

// Observe implements throttle.Observer.
func (a *keyLimiter) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if d.Limit > 0 {
		a.bucket.Load().Observe(ctx, c, d, f)
	}
}

// Evictable implements throttle.Evictable: a key whose bucket is full can be looked up anew.
func (a *keyLimiter) Evictable(now time.Time) bool {
	b := a.bucket.Load()
	if b == nil {
		return true
	}
	d, err := b.Reserve(context.Background(), throttle.Claim{Now: now, DryRun: true})
	return err == nil && d.ResetAfter == 0 && d.Remaining == d.Limit
}
