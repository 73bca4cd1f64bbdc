// Package cenkalti connects package backoff with github.com/cenkalti/backoff/v4, in both
// directions: [New] makes any backoff.Policy a BackOff of that library, and [Policy] makes
// its BackOffs a backoff.Policy.
package cenkalti

import (
	"time"

	v4 "github.com/cenkalti/backoff/v4"

	"github.com/heed-go/heed/backoff"
)

// BackOff implements the BackOff interface of github.com/cenkalti/backoff/v4 by a
// backoff.Policy, for use with that library's Retry and Ticker. The zero BackOff never
// stops and waits as the zero backoff.Exponential does.
//
// Like the implementations of that library, a BackOff belongs to one call and is not safe
// for use by several goroutines. Fields must not change between NextBackOff and Reset.
type BackOff struct {
	Policy     backoff.Policy // nil: backoff.Exponential{}
	MaxRetries int            // how many delays there are; 0 or below: no limit
	MaxElapsed time.Duration  // stop rather than wait beyond it, from Reset or else the first delay; 0 or below: no limit
	Clock      v4.Clock       // what MaxElapsed is measured with; nil: the system clock

	policy  backoff.Policy // Policy, for this call
	retries int
	prev    time.Duration
	start   time.Time
	stopped bool // stays stopped: a luckier draw must not revive the call
}

// New returns a BackOff that waits as p does and stops only when p does. A nil p means
// backoff.Exponential{}.
func New(p backoff.Policy) *BackOff { return &BackOff{Policy: p} }

// NextBackOff returns the next delay, or v4's Stop.
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

// Reset starts over.
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

// elapsed returns the time since start; a clock that stepped back gives none.
func (b *BackOff) elapsed() time.Duration { return max(b.now().Sub(b.start), 0) }

func (b *BackOff) now() time.Time {
	if b.Clock == nil {
		return time.Now()
	}
	return b.Clock.Now()
}

// Policy returns a backoff.Policy that waits as the BackOffs that newBackOff returns do.
//
// BackOffs keep state and cannot be shared, so newBackOff is called once per call, by
// ForCall, and must return a new one each time. A negative delay, such as v4's Stop, becomes
// backoff.Stop. Delay, for callers that do not use ForCall, makes a new BackOff and asks it
// attempt times, 100 times at most. Policy panics if newBackOff is nil.
func Policy(newBackOff func() v4.BackOff) backoff.Stateful {
	if newBackOff == nil {
		panic("cenkalti: Policy: nil constructor: give it a function that returns a new BackOff")
	}
	return policy{newBackOff}
}

// policy makes a BackOff for each call.
type policy struct {
	newBackOff func() v4.BackOff
}

// ForCall implements backoff.Stateful.
func (p policy) ForCall() backoff.Policy {
	b := p.newBackOff()
	b.Reset() // a BackOff that was built as a literal works only after it
	return callPolicy{b}
}

// Delay returns the attempt'th delay of a new BackOff, the 100th at most.
func (p policy) Delay(attempt int, _ time.Duration) time.Duration {
	call := p.ForCall()
	d := call.Delay(1, 0)
	for i := 2; i <= min(attempt, 100) && d != backoff.Stop; i++ {
		d = call.Delay(i, d)
	}
	return d
}

// callPolicy is a BackOff as the backoff.Policy of one call. It counts by itself.
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
