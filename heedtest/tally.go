package heedtest

import (
	"context"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Tally grants so many units in any span of its length, and counts what it
// refuses too, as HAProxy does where it tracks before it denies. Who keeps asking
// is never let in again.
//
// It keeps the instants of the latest Limit units, granted or not. The next is
// granted if the oldest of them is a whole span ago.
//
// As a Limiter it breaks one promise on purpose: its refusals do take.
type Tally struct {
	per  time.Duration
	mu   sync.Mutex
	last []time.Time // a ring
	next int         // the oldest of last
}

// NewTally returns a Tally of count units in any span of per. It panics unless
// both are positive.
func NewTally(count int, per time.Duration) *Tally {
	if count <= 0 || per <= 0 {
		panic("heedtest: NewTally: count and per must be positive")
	}
	return &Tally{per: per, last: make([]time.Time, count)}
}

// Reserve implements throttle.Limiter.
func (l *Tally) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Now.IsZero() {
		c.Now = time.Now()
	}
	most := int64(len(l.last))
	d := throttle.Decision{Policy: "tally", At: c.Now, Limit: most, Per: l.per}
	if n > most {
		d.Wait = throttle.Forever
		return d, nil
	}
	d.OK = l.left(c.Now) >= n
	if !c.DryRun {
		l.add(n, c.Now)
	}
	d.Remaining = l.left(c.Now)
	if !d.OK {
		d.Wait = l.nth(n - 1).Add(l.per).Sub(c.Now)
	}
	d.ResetAfter = max(l.nth(most-1).Add(l.per).Sub(c.Now), 0)
	return d, nil
}

// Cancel implements throttle.Limiter: what was asked for stays asked for.
func (l *Tally) Cancel(context.Context, throttle.Claim, throttle.Decision) {}

// nth returns the instant of a unit, 0 being the oldest.
func (l *Tally) nth(i int64) time.Time {
	return l.last[(int64(l.next)+i)%int64(len(l.last))]
}

// left returns how many units are a span ago or were never taken.
func (l *Tally) left(now time.Time) (n int64) {
	for n < int64(len(l.last)) {
		if at := l.nth(n); !at.IsZero() && now.Sub(at) < l.per {
			break
		}
		n++
	}
	return n
}

func (l *Tally) add(n int64, now time.Time) {
	for range n {
		l.last[l.next] = now
		l.next = (l.next + 1) % len(l.last)
	}
}
