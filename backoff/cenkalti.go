package backoff

import (
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
)

// Cenkalti is a Policy as a BackOff of github.com/cenkalti/backoff/v4, for their
// Retry and Ticker. The zero Cenkalti never stops and waits as the zero
// Exponential does.
//
// Like their own it belongs to one call and is not safe for use by several
// goroutines. Fields must not change between NextBackOff and Reset.
type Cenkalti struct {
	Policy     Policy         // nil: Exponential{}
	MaxRetries int            // how many delays there are; 0 or below: no limit
	MaxElapsed time.Duration  // stop rather than wait beyond it, from Reset or else the first delay; 0 or below: no limit
	Clock      cenkalti.Clock // what MaxElapsed is measured with; nil: the system clock

	policy  Policy // Policy, for this call
	retries int
	prev    time.Duration
	start   time.Time
	stopped bool // stays stopped: a luckier draw must not revive the call
}

// NextBackOff returns the next delay, or their Stop.
func (b *Cenkalti) NextBackOff() time.Duration {
	if b.policy == nil {
		b.Reset()
	}
	if b.stopped || b.MaxRetries > 0 && b.retries >= b.MaxRetries {
		return cenkalti.Stop
	}
	d := b.policy.Delay(b.retries+1, b.prev)
	if d == Stop || b.MaxElapsed > 0 && d > b.MaxElapsed-b.elapsed() {
		b.stopped = true
		return cenkalti.Stop
	}
	b.retries++
	b.prev = d
	return d
}

// Reset starts over.
func (b *Cenkalti) Reset() {
	p := b.Policy
	if p == nil {
		p = Exponential{}
	}
	b.policy, b.retries, b.prev, b.stopped = ForCall(p), 0, 0, false
	if b.MaxElapsed > 0 {
		b.start = b.now()
	}
}

// elapsed returns the time since start; a clock that stepped back gives none.
func (b *Cenkalti) elapsed() time.Duration { return max(b.now().Sub(b.start), 0) }

func (b *Cenkalti) now() time.Time {
	if b.Clock == nil {
		return time.Now()
	}
	return b.Clock.Now()
}

// CenkaltiPolicy is a Source made of stateful BackOffs, one per call: see FromCenkalti.
type CenkaltiPolicy struct {
	newBackOff func() cenkalti.BackOff
}

// FromCenkalti returns a Policy that waits as the BackOffs that fresh returns do.
//
// They keep state and cannot be shared, so fresh is called once per call, that is
// by ForCall, and must return a new one each time. Their Stop, and whatever else is
// below 0, is Never. It panics if fresh is nil.
func FromCenkalti(newBackOff func() cenkalti.BackOff) CenkaltiPolicy {
	if newBackOff == nil {
		panic("backoff: FromCenkalti: nil constructor: give it a function that returns a new BackOff")
	}
	return CenkaltiPolicy{newBackOff}
}

// ForCall implements Source.
func (p CenkaltiPolicy) ForCall() Policy {
	b := p.newBackOff()
	b.Reset() // a BackOff that was built as a literal works only after it
	return callPolicy{b}
}

// Delay returns what a new BackOff says when it is asked for the attempt'th time,
// for those who do not know of Source. It asks at most 100 times.
func (p CenkaltiPolicy) Delay(attempt int, _ time.Duration) time.Duration {
	call := p.ForCall()
	d := call.Delay(1, 0)
	for i := 2; i <= min(attempt, 100) && d != Stop; i++ {
		d = call.Delay(i, d)
	}
	return d
}

// callPolicy is a BackOff as the Policy of one call. It counts by itself.
type callPolicy struct{ b cenkalti.BackOff }

// Delay implements Policy.
func (s callPolicy) Delay(int, time.Duration) time.Duration {
	if d := s.b.NextBackOff(); d >= 0 {
		return d
	}
	return Stop
}

var (
	_ cenkalti.BackOff = (*Cenkalti)(nil)
	_ Stateful         = CenkaltiPolicy{}
)
