package throttle

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// A Capacity says how much an InFlight lets be in use at a time.
type Capacity struct {
	Name  string // shown as Decision.Policy; "": what String says
	Count int64  // units in use at a time; must be positive

	// MaxAge is how long a claim may hold its units. After that they are taken for
	// lost and can be had by others. It must be longer than anything that is done
	// with a claim: who is still at it then is one too many. 0: no end.
	MaxAge time.Duration
}

// Validate returns an error that says what to change if c can never work.
func (c Capacity) Validate() error {
	switch {
	case c.Count <= 0:
		return fmt.Errorf("throttle: capacity %q: Count is %d: it must be positive", c.Name, c.Count)
	case c.MaxAge < 0:
		return fmt.Errorf("throttle: capacity %q: MaxAge is %v: it must be positive, or 0 for no end", c.Name, c.MaxAge)
	}
	return nil
}

// String returns c as people say it, such as "8 in flight".
func (c Capacity) String() string { return strconv.FormatInt(c.Count, 10) + " in flight" }

// InFlight limits how much is going on at a time, however long it takes. A claim
// holds its units until it ends, in Cancel or in the Observe without
// Feedback.More. That is what a service with so many workers needs; a rate would
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
// is news. A Waiter does: it looks at its lines whenever a claim ends through it.
//
// Invariant: the units of the claims that were granted and have not ended are never
// more than Count. There is one hold per such claim, so never more than Count holds.
//
// The odd case is an end that comes twice, or after MaxAge: each hold has a number
// of its own, so that ending it again does nothing to whoever has its place by then.
type InFlight struct {
	time timeline

	mu       sync.Mutex
	capacity Capacity
	policy   string
	last     int64 // latest reading granted at
	used     int64
	holds    []hold // holds[0] is no hold, but joins the ends of the line of all others
	vacant   uint32 // first of the holds that are free, linked by next; 0: none
}

// A hold is what one claim has in use. Those in use form a line, oldest first.
type hold struct {
	prev, next uint32
	number     uint32 // changes when the hold ends
	units      int64
	since      int64
}

// NewInFlight returns an unused limiter. A nil clk is the system clock. It panics if
// c is invalid.
func NewInFlight(c Capacity, clk Clock) *InFlight {
	if err := c.Validate(); err != nil {
		panic(err.Error() + " (NewInFlight)")
	}
	f := &InFlight{time: newTimeline(clk), capacity: c, policy: c.Name, last: neverRead, holds: make([]hold, 1)}
	if f.policy == "" {
		f.policy = c.String()
	}
	return f
}

// Reserve implements Limiter.
func (f *InFlight) Reserve(_ context.Context, c Claim) (Decision, error) {
	n, err := c.Units()
	if err != nil {
		return Decision{}, err
	}
	given := f.time.read(c.Now)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := max(given, f.last)
	used := f.used - f.lost(now)
	d := Decision{Policy: f.policy, Limit: f.capacity.Count, At: f.time.stamp(now, given, c.Now)}
	switch d.OK = n <= f.capacity.Count-used; {
	case n > f.capacity.Count:
		d.Wait = Forever
	case d.OK && !c.DryRun:
		f.drop(now)
		used += n
		d.Grant = f.hold(n, now)
		f.last = now
	}
	d.Remaining = f.capacity.Count - used
	return d, nil
}

// Cancel implements Limiter.
func (f *InFlight) Cancel(_ context.Context, _ Claim, d Decision) {
	if d.OK {
		f.end(d.Grant)
	}
}

// Observe implements Observer: feedback without More ends the claim.
func (f *InFlight) Observe(_ context.Context, _ Claim, d Decision, fb Feedback) {
	if d.OK && !fb.More {
		f.end(d.Grant)
	}
}

// Local implements Local.
func (f *InFlight) Local() bool { return true }

// lost returns the units of the claims that are too old by now. They are given up
// only when somebody takes them: a refusal must not change anything.
func (f *InFlight) lost(now int64) (units int64) {
	for i := f.holds[0].next; i != 0 && f.tooOld(i, now); i = f.holds[i].next {
		units += f.holds[i].units
	}
	return units
}

// drop ends the claims that are too old by now.
func (f *InFlight) drop(now int64) {
	for i := f.holds[0].next; i != 0 && f.tooOld(i, now); i = f.holds[0].next {
		f.free(i)
	}
}

func (f *InFlight) tooOld(i uint32, now int64) bool {
	return f.capacity.MaxAge > 0 && subSat(now, f.holds[i].since) >= int64(f.capacity.MaxAge)
}

// hold puts a hold of n units at the end of the line, and returns what to end it by.
func (f *InFlight) hold(n, now int64) (grant uint64) {
	i := f.vacant
	if i != 0 {
		f.vacant = f.holds[i].next
	} else {
		i = uint32(len(f.holds))
		f.holds = append(f.holds, hold{})
	}
	newest := f.holds[0].prev
	f.holds[i] = hold{prev: newest, number: f.holds[i].number + 1, units: n, since: now}
	f.holds[newest].next, f.holds[0].prev = i, i
	f.used += n
	return uint64(f.holds[i].number)<<32 | uint64(i)
}

// end ends the claim of grant, unless it has ended.
func (f *InFlight) end(grant uint64) {
	i, number := uint32(grant), uint32(grant>>32)
	f.mu.Lock()
	defer f.mu.Unlock()
	if i != 0 && int64(i) < int64(len(f.holds)) && f.holds[i].number == number && f.holds[i].units > 0 {
		f.free(i)
	}
}

// free takes hold i, which is in use, out of the line.
func (f *InFlight) free(i uint32) {
	h := &f.holds[i]
	f.used -= h.units
	f.holds[h.prev].next, f.holds[h.next].prev = h.next, h.prev
	*h = hold{next: f.vacant, number: h.number}
	f.vacant = i
}
