// Package peers divides what remains of a quota among the processes that use it, and remembers what they
// know of its limits.
package peers

import (
	"maps"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// A Set is the other processes that use a quota. What remains of it remains for all of them: if
// each used all of it, ten processes would send ten times as much within one round trip.
// Therefore each has at most an equal part of one half of it in flight. The other half may be in
// flight already: requests are not counted before they arrive at the server. With each response,
// what remains is divided again, so processes that need little leave more to the others:
//
//	60 left    3 in flight in each of ten
//	40 left    2                             (20 were used meanwhile)
//	20 left    1
//	4 left     1 in every fifth
//
// Parts are rounded up or down at random, so that the last few units are used by a few processes. The zero
// Set is empty. It is not safe for concurrent use.
type Set struct {
	all      map[uint64]time.Time // when each is dropped, by its identifier; at most Max
	rounding float64              // parts whose fraction is at least 1 - rounding are rounded up
	rounded  time.Time            // when rounding was drawn
}

// Max is the number of processes that are counted at most.
const Max = 64

const (
	timeout    = 3 * time.Second       // without an update, after the end of what it waits for, until a process is dropped
	maxTime    = time.Minute           // without an update, until a process is dropped
	roundEvery = 50 * time.Millisecond // between draws of Set.rounding
)

// Add records that the process called id uses the quota. No updates of it are expected while it waits, for
// the time wait from now on.
func (p *Set) Add(id uint64, wait time.Duration, now time.Time) {
	if before, known := p.all[id]; known || len(p.all) < Max {
		if p.all == nil {
			p.all = make(map[uint64]time.Time)
		}
		p.all[id] = ticks.Later(before, now.Add(min(wait+timeout, maxTime)))
	}
}

// Len returns the number of processes.
func (p *Set) Len() int { return len(p.all) }

// Drop drops the processes that have sent no updates for long, and returns the number of those that remain.
func (p *Set) Drop(now time.Time) int {
	maps.DeleteFunc(p.all, func(_ uint64, until time.Time) bool { return !now.Before(until) })
	return len(p.all)
}

// Part returns how many of the units that are left this process may have in flight, and the time until that
// is computed with another random number in [0, 1).
func (p *Set) Part(left int64, random func() float64, now time.Time) (part int64, next time.Duration) {
	if now.Sub(p.rounded) >= roundEvery {
		p.rounding, p.rounded = random(), now
	}
	part = int64(float64(left)/float64(2*(len(p.all)+1)) + p.rounding)
	return part, p.rounded.Add(roundEvery).Sub(now)
}

// Limits are what other processes know of the limits of a quota.
type Limits []known

// A known is what other processes know of one limit.
type known struct {
	name      string
	per       time.Duration
	remaining int64
	reset     time.Time
}

// changedPart is the divisor of what others know to remain of a limit: when it has fallen by that part, it has
// changed.
const changedPart = 4

// Changed reports whether the limits differ much from what other processes know. recent reports whether they
// received them just now: then only a limit of which nothing remains has changed.
func (l Limits) Changed(limits []statedlimit.Estimate, recent bool) (changed bool) {
	for i := range limits {
		e := &limits[i]
		if e.CountsInFlight() {
			continue // what remains has changed when the update arrives
		}
		at := slices.IndexFunc(l, func(k known) bool { return k.name == e.Name && k.per == e.Per })
		if at < 0 || e.Reset.Sub(l[at].reset) > statedlimit.Tolerance {
			changed = changed || !recent
			continue
		}
		before := &l[at].remaining
		if *before-e.Remaining >= max(*before/changedPart, 1) {
			changed = changed || !recent || e.Remaining == 0
		}
		*before = max(*before, e.Remaining)
	}
	return changed
}

// Set records that other processes know limits.
func (l *Limits) Set(limits []statedlimit.Estimate) {
	*l = (*l)[:0]
	for i := range limits {
		e := &limits[i]
		*l = append(*l, known{e.Name, e.Per, e.Remaining, e.Reset})
	}
}
