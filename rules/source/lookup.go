package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// doneCh is the done channel of a lookup that has ended.
var doneCh = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// current returns the record of the key, and whether the claim waited for a lookup. The record is
// nil if the key has never been looked up and MaxLookups lookups are running.
func (a *keyLimiter) current(ctx context.Context, now time.Time) (f *limitRecord, waited bool, err error) {
	for {
		if f = a.record.Load(); a.isFresh(f, now) {
			return f, waited, nil
		}
		done, mine := a.join(now)
		switch {
		case mine:
			f, err = a.lookup(ctx, now)
			return f, true, err
		case f != nil, done == nil:
			return f, waited, nil
		}
		select {
		case <-done:
			waited = true
		case <-ctx.Done():
			return nil, true, context.Cause(ctx)
		}
	}
}

// isFresh reports whether f is still valid at now. A record that was looked up at a time slightly
// after now is valid. A record that expires too far after now is not, so that a clock reading that
// was wrong by a year does not keep a limit for a year.
func (a *keyLimiter) isFresh(f *limitRecord, now time.Time) bool {
	if f == nil || f.generation != a.source.generation.Load() {
		return false
	}
	left := f.expires.Sub(now)
	return left > 0 && left/2 <= f.ttl
}

// join returns the done channel of the running lookup of the key. If none is running it begins
// one, which the caller must execute, and returns true. It returns nil if MaxLookups lookups are
// running; then it gives a key without a record a bucket with Default, if there is one.
func (a *keyLimiter) join(now time.Time) (done chan struct{}, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.record.Load()
	switch {
	case a.lookupDone != nil:
		return a.lookupDone, false
	case a.isFresh(f, now):
		return doneCh, false
	case a.source.beginLookup():
		a.lookupDone = make(chan struct{})
		return a.lookupDone, true
	case f == nil:
		a.setLimit(a.source.Default)
	}
	return nil, false
}

// lookup looks up the key and stores the result. If ctx ends early, the result says nothing about
// the key: lookup returns the previous record, or the cause of ctx if there is none.
func (a *keyLimiter) lookup(ctx context.Context, now time.Time) (*limitRecord, error) {
	defer a.finish()
	s := a.source
	round := s.generation.Load()
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	l, err := s.Lookup(bounded, a.key)
	if err != nil && ctx.Err() != nil {
		if old := a.record.Load(); old != nil {
			return old, nil
		}
		return nil, context.Cause(ctx)
	}
	f := a.newRecord(l, err)
	f.generation, f.expires = round, now.Add(f.ttl)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch f.kind {
	case limited:
		a.setLimit(f.limit)
	case missing, failed:
		a.setLimit(s.Default)
	}
	a.record.Store(f)
	return f, nil
}

// newRecord returns the record for the result of Lookup.
func (a *keyLimiter) newRecord(l throttle.Limit, err error) *limitRecord {
	s := a.source
	if err == nil || errors.Is(err, ErrUnlimited) || errors.Is(err, ErrNoLimit) {
		s.recordSuccess()
	}
	if err == nil && l.Count == 0 {
		return &limitRecord{kind: blocked, ttl: s.jitteredTTL(s.TTL, time.Minute)}
	}
	if err == nil {
		err = l.Validate()
	}
	switch {
	case err == nil:
		return &limitRecord{kind: limited, limit: l, ttl: s.jitteredTTL(s.TTL, time.Minute)}
	case errors.Is(err, ErrUnlimited):
		return &limitRecord{kind: unlimited, ttl: s.jitteredTTL(s.TTL, time.Minute)}
	case errors.Is(err, ErrNoLimit):
		return &limitRecord{kind: missing, ttl: s.jitteredTTL(s.MissingTTL, 10*time.Second)}
	}
	return a.newFailureRecord(fmt.Errorf("source: the limit of a key cannot be looked up: %w", err))
}

// newFailureRecord returns the record after a failed lookup: the previous one, if there is one
// that has not failed.
func (a *keyLimiter) newFailureRecord(err error) *limitRecord {
	s := a.source
	if s.OnError != nil {
		s.OnError(a.key, err)
	}
	f := &limitRecord{kind: failed, err: err, blameKey: s.available()}
	if old := a.record.Load(); old != nil && old.kind != failed {
		*f = *old
	}
	f.ttl = s.jitteredTTL(s.FailedTTL, time.Second)
	return f
}

// setLimit changes the limit of the key to l. It does nothing if l is the zero Limit. The caller
// holds a.mu.
func (a *keyLimiter) setLimit(l throttle.Limit) {
	if l == a.limit || l == (throttle.Limit{}) {
		return
	}
	if b := a.bucket.Load(); b == nil {
		a.bucket.Store(throttle.WithClock(throttle.NewTokenBucket(l), a.source.Clock))
	} else if err := b.SetLimit(l); err != nil {
		return
	}
	a.limit = l
}

// finish ends a lookup, including one that panicked.
func (a *keyLimiter) finish() {
	a.mu.Lock()
	close(a.lookupDone)
	a.lookupDone = nil
	a.mu.Unlock()
	a.source.lookups.Add(-1)
}
