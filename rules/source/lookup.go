package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A lookupCall is a lookup of a key that runs or waits for a slot.
type lookupCall struct {
	done chan struct{} // closed when it has ended
	busy bool          // it got no slot; may be read when it has ended
}

// current returns the record of the key, and whether the claim waited for a lookup. The record is
// nil if the key has never been looked up and cannot be now, because MaxLookups lookups are running.
func (a *keyLimiter) current(ctx context.Context, now time.Time) (f *limitRecord, waited bool, err error) {
	for {
		if f = a.record.Load(); a.isFresh(f, now) {
			return f, waited, nil
		}
		call, mine := a.join(now)
		switch {
		case call == nil:
			continue // another claim has ended a lookup meanwhile
		case mine:
			f, err = a.lookup(ctx, now, call)
			return f, true, err
		case f != nil:
			return f, waited, nil
		}
		select {
		case <-call.done:
			waited = true
		case <-ctx.Done():
			return nil, true, context.Cause(ctx)
		}
		if call.busy {
			return a.record.Load(), true, nil
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

// join returns the running lookup of the key. If none is running it returns a new one, which the
// caller must execute, and true. It returns nil if the record is fresh.
func (a *keyLimiter) join(now time.Time) (call *lookupCall, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.running != nil:
		return a.running, false
	case a.isFresh(a.record.Load(), now):
		return nil, false
	}
	a.running = &lookupCall{done: make(chan struct{})}
	return a.running, true
}

// acquire takes a slot for a lookup. A claim of a key that is known to have a limit waits for it, before
// all others. Other claims wait only if they would be rejected otherwise.
func (a *keyLimiter) acquire(ctx context.Context) bool {
	s, f := a.source, a.record.Load()
	known := f != nil && f.hasLimit() || f == nil && s.known.has(a.key)
	return s.slots.acquire(ctx, s.maxLookups(), known, known || f == nil && !s.hasDefault())
}

// busyRecord returns the record of a key that got no slot. A record with a limit is kept for FailedTTL,
// so that not each claim waits for a slot. A key without a record gets a bucket with Default, if
// there is one.
func (a *keyLimiter) busyRecord(now time.Time) *limitRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.record.Load()
	switch {
	case old == nil:
		a.setLimit(a.source.Default)
		return nil
	case !old.hasLimit():
		return old
	}
	f := *old
	f.ttl = a.source.jitteredTTL(a.source.FailedTTL, time.Second)
	f.generation, f.expires = a.source.generation.Load(), now.Add(f.ttl)
	a.record.Store(&f)
	return &f
}

// lookup looks up the key and stores the result. If ctx ends early, the result says nothing about
// the key: lookup returns the previous record, or the cause of ctx if there is none.
func (a *keyLimiter) lookup(ctx context.Context, now time.Time, call *lookupCall) (*limitRecord, error) {
	defer a.finish(call)
	if !a.acquire(ctx) {
		if call.busy = ctx.Err() == nil; !call.busy && a.record.Load() == nil {
			return nil, context.Cause(ctx)
		}
		return a.busyRecord(now), nil
	}
	defer a.source.slots.release()
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
	if err == nil || errors.Is(err, ErrUnlimited) {
		s.known.add(a.key, s.maxKeys())
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
		bucket := throttle.WithClock(throttle.NewTokenBucket(l), a.source.Clock)
		a.bucket.Store(&bucket)
	} else if err := (*b).SetLimit(l); err != nil {
		return
	}
	a.limit = l
}

// finish ends call, including a lookup that panicked.
func (a *keyLimiter) finish(call *lookupCall) {
	a.mu.Lock()
	a.running = nil
	a.mu.Unlock()
	close(call.done)
}
