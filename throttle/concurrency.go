package throttle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A ConcurrencyConfig configures NewConcurrency.
type ConcurrencyConfig struct {
	// Name is returned as Decision.Policy. Empty means the result of String.
	Name string

	// Count is the maximum number of units in use at the same time. It must be positive.
	Count int64

	// MaxAge is how long a claim may hold its units. After that they can be granted again, so
	// work that takes longer exceeds Count. Zero means no maximum.
	MaxAge time.Duration
}

// Validate returns an error that states the invalid field if c is invalid.
func (c ConcurrencyConfig) Validate() error {
	switch {
	case c.Count <= 0:
		return fmt.Errorf("throttle: concurrency %q: Count is %d: it must be positive", c.Name, c.Count)
	case c.MaxAge < 0:
		return fmt.Errorf("throttle: concurrency %q: MaxAge is %v: it must be positive, or 0 for no end", c.Name, c.MaxAge)
	}
	return nil
}

// String returns c in words, such as "8 in flight".
func (c ConcurrencyConfig) String() string { return strconv.FormatInt(c.Count, 10) + " in flight" }

type concurrency struct {
	base
	config   ConcurrencyConfig
	used     int64
	claims   []activeClaim // claims[0] is not a claim, but the head of the circular list of all claims in use
	freeList uint32        // index of the first free entry, linked by next; 0: none
}

// An activeClaim is a claim in use. Claims in use form a doubly linked list, oldest first.
type activeClaim struct {
	prev, next uint32
	generation uint32 // changes when the claim ends; part of Decision.Grant
	units      int64
	since      int64
}

// NewConcurrency returns a limiter of the number of units in use at the same time. A claim holds
// its units until a Report whose State is not Ongoing. It suits a server with a fixed number of
// workers, for which a rate would depend on the duration of the work.
//
//	units in use        Count 3
//	 3 ┤      ▁▁▁▁▏  ▁▁▁     d is rejected while a, b and c are in use; c ends
//	 2 ┤   ▁▁▁▏   ▔▔▔▏  ▔▔▔  and d, asking again, is granted
//	 1 ┤▔▔▔   ▏      ▏
//	 0 ┼───┬──┬──┬───┬──────▶ time
//	   a   b  c  c   d
//	             ends
//
// The end of the work cannot be predicted, so the Wait of a rejection is 0: ask again when
// a claim has ended, as a queue.Queue does for claims that end through it.
//
// Invariant: the units of the claims that were granted and have not ended are never more
// than Count, unless SetLimit has lowered it below them. Ending a claim a second time, or after
// MaxAge, does nothing.
//
// SetLimit replaces Name and Count; Per and Burst must be 0. Claims that are in use keep their
// units, also if these are more than Count. After raising Count, call Wake of a queue.Queue.
//
// It panics if c is invalid.
func NewConcurrency(c ConcurrencyConfig) Adjustable {
	must(c.Validate(), "NewConcurrency")
	return &concurrency{base: newBase(ticks.NewTimeline(), policyOf(c.Name, c)), config: c, claims: make([]activeClaim, 1)}
}

func (f *concurrency) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := f.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer f.mu.Unlock()
	expired, oldest := f.expired(now)
	used := f.used - expired
	d.Limit = f.config.Count
	switch d.OK = n <= f.config.Count-used; {
	case n > f.config.Count:
		d.Wait = Forever
	case d.OK && !c.DryRun:
		for f.claims[0].next != oldest {
			f.remove(f.claims[0].next)
		}
		used += n
		d.Grant = f.add(n, now)
		f.last = now
	}
	d.Remaining = max(f.config.Count-used, 0)
	d.setFresh(&c)
	return d, nil
}

// Report implements Limiter: feedback with another State than Ongoing ends the claim.
func (f *concurrency) Report(_ context.Context, _ Claim, d Decision, fb Feedback) {
	if !d.OK || fb.State == Ongoing {
		return
	}
	i, generation := uint32(d.Grant), uint32(d.Grant>>32)
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(i) < int64(len(f.claims)) && f.claims[i].generation == generation && f.claims[i].units > 0 {
		f.remove(i)
	}
}

func (*concurrency) Traits() Traits { return Traits{NonBlocking: true} }

func (f *concurrency) SetLimit(l Limit) error {
	if l.Per != 0 || l.Burst != 0 {
		return fmt.Errorf("throttle: concurrency %q: Per is %v and Burst is %d: leave both 0: units are in use as long as their claims last", l.Name, l.Per, l.Burst)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.config
	c.Name, c.Count = l.Name, l.Count
	if err := c.Validate(); err != nil {
		return err
	}
	f.config, f.policy = c, policyOf(c.Name, c)
	return nil
}

// expired returns the units of the claims that have reached MaxAge at now, and the oldest other
// claim, or 0. A rejection must not change the state, so they are removed by the next grant.
func (f *concurrency) expired(now int64) (units int64, oldest uint32) {
	oldest = f.claims[0].next
	for f.config.MaxAge > 0 && oldest != 0 && ticks.Sub(now, f.claims[oldest].since) >= int64(f.config.MaxAge) {
		units += f.claims[oldest].units
		oldest = f.claims[oldest].next
	}
	return units, oldest
}

// add appends a claim of n units to the list and returns its Decision.Grant.
func (f *concurrency) add(n, now int64) (grant uint64) {
	i := f.freeList
	if i != 0 {
		f.freeList = f.claims[i].next
	} else {
		i = uint32(len(f.claims))
		f.claims = append(f.claims, activeClaim{})
	}
	newest := f.claims[0].prev
	f.claims[i] = activeClaim{prev: newest, generation: f.claims[i].generation + 1, units: n, since: now}
	f.claims[newest].next, f.claims[0].prev = i, i
	f.used += n
	return uint64(f.claims[i].generation)<<32 | uint64(i)
}

// remove removes entry i, which is in use, from the list.
func (f *concurrency) remove(i uint32) {
	h := &f.claims[i]
	f.used -= h.units
	f.claims[h.prev].next, f.claims[h.next].prev = h.next, h.prev
	*h = activeClaim{next: f.freeList, generation: h.generation}
	f.freeList = i
}
