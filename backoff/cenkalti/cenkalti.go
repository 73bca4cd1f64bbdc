// Package cenkalti connects package backoff with github.com/cenkalti/backoff/v4, in both
// directions: [New] converts a backoff.Policy to a BackOff of that library, and [Policy]
// converts its BackOffs to a backoff.Policy.
//
//	v4.Retry(operation, cenkalti.New(backoff.Exponential{}))
//	retry := &heed.RetryPolicy{Backoff: cenkalti.Policy(func() v4.BackOff { return v4.NewExponentialBackOff() })}
package cenkalti

import (
	"time"

	v4 "github.com/cenkalti/backoff/v4"

	"github.com/heed-go/heed/backoff"
)

// BackOff implements the BackOff interface of github.com/cenkalti/backoff/v4 with a
// backoff.Policy, for use with Retry and Ticker of that library. The zero BackOff returns the
// delays of the zero backoff.Exponential and never stops.
//
// Like the implementations of that library, a BackOff belongs to one call and is not safe for
// concurrent use. Its fields must not be changed between NextBackOff and Reset.
type BackOff struct {
	// Policy computes the delays. Nil means backoff.Exponential{}.
	Policy backoff.Policy

	// MaxRetries is the maximum number of delays. Zero and negative values mean no limit.
	MaxRetries int

	// MaxElapsed limits the time from Reset, or else from the first call of NextBackOff, to
	// the end of a delay. A delay that would exceed it is replaced by Stop. Zero and negative
	// values mean no limit.
	MaxElapsed time.Duration

	// Clock measures MaxElapsed. Nil means the system clock.
	Clock v4.Clock

	policy  backoff.Policy // the Policy of the current call
	retries int
	prev    time.Duration
	start   time.Time
	stopped bool // stays true until Reset, even if a later random delay would fit
}

// New returns a BackOff that returns the delays of p and stops when p does. A nil p means
// backoff.Exponential{}.
func New(p backoff.Policy) *BackOff { return &BackOff{Policy: p} }

// NextBackOff returns the next delay, or Stop of github.com/cenkalti/backoff/v4.
func (b *BackOff) NextBackOff() time.Duration {
	if b.policy == nil {
		b.Reset()
	}
	if b.stopped || b.MaxRetries > 0 && b.retries >= b.MaxRetries {
		return v4.Stop
	}
	d := b.policy.Delay(b.retries+1, b.prev)
	if d == backoff.Stop || b.MaxElapsed > 0 && d > b.MaxElapsed-b.elapsed() {
		b.stopped = true
		return v4.Stop
	}
	b.retries++
	b.prev = d
	return d
}

// Reset prepares b for a new call.
func (b *BackOff) Reset() {
	p := b.Policy
	if p == nil {
		p = backoff.Exponential{}
	}
	b.policy, b.retries, b.prev, b.stopped = backoff.ForCall(p), 0, 0, false
	if b.MaxElapsed > 0 {
		b.start = b.now()
	}
}

// elapsed returns the time since start, or 0 if the clock has stepped back.
func (b *BackOff) elapsed() time.Duration { return max(b.now().Sub(b.start), 0) }

func (b *BackOff) now() time.Time {
	if b.Clock == nil {
		return time.Now()
	}
	return b.Clock.Now()
}

// Policy returns a backoff.Policy with the delays of the BackOffs that newBackOff returns.
//
// BackOffs have state and cannot be shared. ForCall therefore calls newBackOff once per call,
// and newBackOff must return a new BackOff each time. A negative delay, such as Stop of
// github.com/cenkalti/backoff/v4, becomes backoff.Stop. Delay, for callers that do not use
// ForCall, creates a new BackOff and calls it attempt times, at most 100 times. Policy panics
// if newBackOff is nil.
func Policy(newBackOff func() v4.BackOff) backoff.Stateful {
	if newBackOff == nil {
		panic("cenkalti: Policy: nil constructor: give it a function that returns a new BackOff")
	}
	return policy{newBackOff}
}

// policy creates a BackOff for each call.
type policy struct {
	newBackOff func() v4.BackOff
}

// ForCall implements backoff.Stateful.
func (p policy) ForCall() backoff.Policy {
	b := p.newBackOff()
	b.Reset() // a BackOff that was created as a literal works only after Reset
	return callPolicy{b}
}

// Delay returns the delay of a new BackOff after the given attempt, or after the 100th attempt
// if attempt is larger.
func (p policy) Delay(attempt int, _ time.Duration) time.Duration {
	call := p.ForCall()
	d := call.Delay(1, 0)
	for i := 2; i <= min(attempt, 100) && d != backoff.Stop; i++ {
		d = call.Delay(i, d)
	}
	return d
}

// callPolicy is a BackOff as the backoff.Policy of one call. The BackOff counts the attempts
// itself.
type callPolicy struct{ b v4.BackOff }

// Delay implements backoff.Policy.
func (s callPolicy) Delay(int, time.Duration) time.Duration {
	if d := s.b.NextBackOff(); d >= 0 {
		return d
	}
	return backoff.Stop
}

var (
	_ v4.BackOff       = (*BackOff)(nil)
	_ backoff.Stateful = policy{}
)
