package throttle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A ConcurrencyConfig says how much an Concurrency lets be in use at a time.
type ConcurrencyConfig struct {
	Name  string // shown as Decision.Policy; "": what String says
	Count int64  // units in use at a time; must be positive

	// MaxAge is how long a claim may hold its units. After that they are taken for
	// lost and can be had by others. It must be longer than anything that is done
	// with a claim: who is still at it then is one too many. 0: no end.
	MaxAge time.Duration
}

// Validate returns an error that says what to change if c can never work.
func (c ConcurrencyConfig) Validate() error {
	switch {
	case c.Count <= 0:
		return fmt.Errorf("throttle: concurrency %q: Count is %d: it must be positive", c.Name, c.Count)
	case c.MaxAge < 0:
		return fmt.Errorf("throttle: concurrency %q: MaxAge is %v: it must be positive, or 0 for no end", c.Name, c.MaxAge)
	}
	return nil
}

// String returns c as people say it, such as "8 in flight".
func (c ConcurrencyConfig) String() string { return strconv.FormatInt(c.Count, 10) + " in flight" }

// Concurrency limits how much is going on at a time, however long it takes. A claim
// holds its units until it ends, in Cancel or in the Observe without
// Feedback.Partial. That is what a service with so many workers needs; a rate would
// have to guess how long they work.
//
//	units in use        Count 3
//	 3 ┤      ▁▁▁▁▏  ▁▁▁     d is refused while a, b and c are at work; c ends
//	 2 ┤   ▁▁▁▏   ▔▔▔▏  ▔▔▔  and d, asking again, takes its place
//	 1 ┤▔▔▔   ▏      ▏
//	 0 ┼───┬──┬──┬───┬──────▶ time
//	   a   b  c  c   d
//	             ends
//
// Nobody knows when work ends, so the Wait of a refusal is 0: ask again when there
// is news. A queue.Queue does: it looks at its lines whenever a claim ends through it.
//
// Invariant: the units of the claims that were granted and have not ended are never
// more than Count. There is one hold per such claim, so never more than Count holds.
//
// The odd case is an end that comes twice, or after MaxAge: each hold has a number
// of its own, so that ending it again does nothing to whoever has its place by then.
type Concurrency struct {
	base
	config   ConcurrencyConfig
	used     int64
	claims   []activeClaim // holds[0] is no hold, but joins the ends of the line of all others
	freeList uint32        // first of the holds that are free, linked by next; 0: none
}

// An activeClaim is what one claim has in use. Those in use form a line, oldest first.
type activeClaim struct {
	prev, next uint32
	generation uint32 // changes when the hold ends
	units      int64
	since      int64
}

// NewConcurrency returns an unused limiter. A nil clk is the system clock. It panics if
// c is invalid.
func NewConcurrency(c ConcurrencyConfig, clk Clock) *Concurrency {
	must(c.Validate(), "NewConcurrency")
	return &Concurrency{base: newBase(ticks.NewTimeline(clk), c.policy()), config: c, claims: make([]activeClaim, 1)}
}

func (c ConcurrencyConfig) policy() string {
	if c.Name == "" {
		return c.String()
	}
	return c.Name
}

// Reserve implements Limiter.
func (f *Concurrency) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := f.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer f.mu.Unlock()
	used := f.used - f.expiredUnits(r.now)
	d.Limit = f.config.Count
	switch d.OK = n <= f.config.Count-used; {
	case n > f.config.Count:
		d.Wait = Forever
	case d.OK && !c.DryRun:
		f.removeExpired(r.now)
		used += n
		d.Grant = f.add(n, r.now)
		f.last = r.now
	}
	d.Remaining = f.config.Count - used
	return d, nil
}

// Cancel implements Limiter.
func (f *Concurrency) Cancel(_ context.Context, _ Claim, d Decision) {
	if d.OK {
		f.end(d.Grant)
	}
}

// Observe implements Observer: feedback without More ends the claim.
func (f *Concurrency) Observe(_ context.Context, _ Claim, d Decision, fb Feedback) {
	if d.OK && !fb.Partial {
		f.end(d.Grant)
	}
}

// expiredUnits returns the units of the claims that are too old by now. They are given up
// only when somebody takes them: a refusal must not change anything.
func (f *Concurrency) expiredUnits(now int64) (units int64) {
	for i := f.claims[0].next; i != 0 && f.isExpired(i, now); i = f.claims[i].next {
		units += f.claims[i].units
	}
	return units
}

// removeExpired ends the claims that are too old by now.
func (f *Concurrency) removeExpired(now int64) {
	for i := f.claims[0].next; i != 0 && f.isExpired(i, now); i = f.claims[0].next {
		f.remove(i)
	}
}

func (f *Concurrency) isExpired(i uint32, now int64) bool {
	return f.config.MaxAge > 0 && ticks.Sub(now, f.claims[i].since) >= int64(f.config.MaxAge)
}

// add puts a hold of n units at the end of the line, and returns what to end it by.
func (f *Concurrency) add(n, now int64) (grant uint64) {
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

// end ends the claim of grant, unless it has ended.
func (f *Concurrency) end(grant uint64) {
	i, number := uint32(grant), uint32(grant>>32)
	f.mu.Lock()
	defer f.mu.Unlock()
	if i != 0 && int64(i) < int64(len(f.claims)) && f.claims[i].generation == number && f.claims[i].units > 0 {
		f.remove(i)
	}
}

// remove takes hold i, which is in use, out of the line.
func (f *Concurrency) remove(i uint32) {
	h := &f.claims[i]
	f.used -= h.units
	f.claims[h.prev].next, f.claims[h.next].prev = h.next, h.prev
	*h = activeClaim{next: f.freeList, generation: h.generation}
	f.freeList = i
}

// HoldsUntilEnd implements Holder: a place is taken until the claim has ended.
func (*Concurrency) HoldsUntilEnd() bool { return true }
