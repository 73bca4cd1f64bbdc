package throttle

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// clocked is the base of limiters that keep their state in memory and read a clock.
type clocked struct{ time ticks.Timeline }

// SetClock replaces the clock; see WithClock.
func (b *clocked) SetClock(c Clock) { b.time.SetClock(c) }

// Timeline returns the timeline. Package rate knows by it which limiters are of this module.
func (b *clocked) Timeline() *ticks.Timeline { return &b.time }

func (*clocked) Traits() Traits { return Traits{NonBlocking: true, EndsAtResponse: true} }

// bookingTraits returns the Traits of a limiter in memory that may book ahead.
func bookingTraits(ahead bool) Traits {
	return Traits{NonBlocking: true, EndsAtResponse: true, BooksAhead: ahead}
}

// base is the base of limiters with one lock, which guards all their mutable fields.
type base struct {
	clocked
	mu     sync.Mutex
	policy string
	last   int64 // latest reading that changed the state; ticks.Never before the first
}

func newBase(tl ticks.Timeline, policy string) base {
	return base{clocked: clocked{tl}, policy: policy, last: ticks.Never}
}

// begin validates c, locks b, and returns the units of c and the time of the decision: the
// reading of c, or b.last if that is later. It sets d.Policy and d.At in place, because copying
// a Decision takes as long as deciding. If err is nil, the caller must unlock b; otherwise b is
// unlocked and d is unchanged.
func (b *base) begin(c *Claim, d *Decision) (n, now int64, err error) {
	if n, err = c.Units(); err != nil {
		return 0, 0, err
	}
	given := b.time.Read(c.Now)
	b.mu.Lock()
	now = max(given, b.last)
	d.Policy, d.At = b.policy, b.time.Stamp(now, given, c.Now)
	return n, now, nil
}

// correct calls change, with b locked, if the actual cost of the claim differs from the claimed
// one: with the difference, see Feedback.ExtraCost, and the reading of f, or b.last if later.
func (b *base) correct(c Claim, d Decision, f Feedback, change func(extra, now int64)) {
	extra := f.ExtraCost(c, d)
	if extra == 0 {
		return
	}
	given := b.time.Read(f.Now)
	b.mu.Lock()
	defer b.mu.Unlock()
	change(extra, max(given, b.last))
}

// readAnchor returns anchor as a reading, or 0 if anchor is zero.
func (b *base) readAnchor(anchor time.Time) int64 {
	if anchor.IsZero() {
		return 0
	}
	return b.time.Read(anchor)
}

// policyOf returns Decision.Policy of a limiter with the given name and configuration.
func policyOf(name string, config fmt.Stringer) string { return cmp.Or(name, config.String()) }

// must panics if err, the result of validating the arguments of constructor, is not nil.
func must(err error, constructor string) {
	if err != nil {
		panic(err.Error() + " (" + constructor + ")")
	}
}
