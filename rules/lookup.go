package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// landed is a flight that is over.
var landed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// know returns what is known of the key, and whether that took a while. It is nil if
// nothing is known and too much is being asked for.
func (a *account) know(ctx context.Context, now time.Time) (f *terms, waited bool, err error) {
	for {
		if f = a.found.Load(); a.fresh(f, now) {
			return f, waited, nil
		}
		flight, mine := a.board(now)
		switch {
		case mine:
			f, err = a.look(ctx, now)
			return f, true, err
		case f != nil, flight == nil:
			return f, waited, nil
		}
		select {
		case <-flight:
			waited = true
		case <-ctx.Done():
			return nil, true, context.Cause(ctx)
		}
	}
}

// fresh reports whether f need not be asked for again. It may be from a reading of the
// clock that is a little ahead of now, but a reading that was wrong by a year must not
// keep it for a year.
func (a *account) fresh(f *terms, now time.Time) bool {
	if f == nil || f.round != a.source.round.Load() {
		return false
	}
	left := f.until.Sub(now)
	return left > 0 && left/2 <= f.kept
}

// board returns the lookup of the key that is under way, or begins one, which is mine
// then. It is nil if there are too many; then the key has a bucket, if there is a
// Default.
func (a *account) board(now time.Time) (flight chan struct{}, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.found.Load()
	switch {
	case a.flight != nil:
		return a.flight, false
	case a.fresh(f, now):
		return landed, false
	case a.source.admit():
		a.flight = make(chan struct{})
		return a.flight, true
	case f == nil:
		a.apply(a.source.Default)
	}
	return nil, false
}

// look looks the key up and keeps what it learns. A claim that gives up learns nothing,
// and its error says nothing of the key: what was known before will do, if anything was.
func (a *account) look(ctx context.Context, now time.Time) (*terms, error) {
	defer a.land()
	s := a.source
	round := s.round.Load()
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	l, err := s.Lookup(bounded, a.key)
	if err != nil && ctx.Err() != nil {
		if old := a.found.Load(); old != nil {
			return old, nil
		}
		return nil, context.Cause(ctx)
	}
	f := a.learn(l, err)
	f.round, f.until = round, now.Add(f.kept)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch f.kind {
	case limited:
		a.apply(f.limit)
	case missing, failed:
		a.apply(s.Default)
	}
	a.found.Store(f)
	return f, nil
}

// learn returns what is known after a lookup.
func (a *account) learn(l throttle.Limit, err error) *terms {
	s := a.source
	if err == nil || errors.Is(err, ErrUnlimited) || errors.Is(err, ErrNoLimit) {
		s.noteResponse()
	}
	if err == nil {
		err = l.Validate()
	}
	switch {
	case err == nil:
		return &terms{kind: limited, limit: l, kept: s.keeps(s.Keep, time.Minute)}
	case errors.Is(err, ErrUnlimited):
		return &terms{kind: unlimited, kept: s.keeps(s.Keep, time.Minute)}
	case errors.Is(err, ErrNoLimit):
		return &terms{kind: missing, kept: s.keeps(s.KeepMissing, 10*time.Second)}
	}
	return a.learnFailure(fmt.Errorf("rules: Source: the limit of a key cannot be looked up: %w", err))
}

// learnFailure returns what is known after a lookup that failed: what was known before.
func (a *account) learnFailure(err error) *terms {
	s := a.source
	if s.OnError != nil {
		s.OnError(a.key, err)
	}
	f := &terms{kind: failed, err: err, blame: s.available()}
	if old := a.found.Load(); old != nil && old.kind != failed {
		*f = *old
	}
	f.kept = s.keeps(s.KeepFailed, time.Second)
	return f
}

// apply gives the key the limit l, which is valid, or zero: then all stays as it is.
// The caller holds a.mu.
func (a *account) apply(l throttle.Limit) {
	if l == a.limit || l == (throttle.Limit{}) {
		return
	}
	if b := a.bucket.Load(); b == nil {
		a.bucket.Store(throttle.NewTokenBucket(l, a.source.Clock))
	} else if err := b.SetLimit(l); err != nil {
		return
	}
	a.limit = l
}

// land ends a lookup, also one that panicked.
func (a *account) land() {
	a.mu.Lock()
	close(a.flight)
	a.flight = nil
	a.mu.Unlock()
	a.source.lookups.Add(-1)
}
