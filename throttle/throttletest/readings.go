package throttletest

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// olderReadings grants a claim and then makes claims with older readings, on one of two
// limiters that otherwise get the same claims.
func (s *suite) olderReadings() {
	span, most := s.recoveryAndLargest()
	older, newest := s.newSubject(epoch), s.newSubject(epoch)
	if s.Approximate {
		return
	}
	if s.AcceptsOlderReadings {
		s.alternatingReadings(span)
		return
	}
	t := epoch.Add(3 * span)
	c := throttle.Claim{Cost: max(most/2, 1), Now: t}
	if !older.reserve(c).OK || !newest.reserve(c).OK {
		return
	}
	for i, back := range []time.Duration{0, 1, span / 3, span, 2 * span, year} {
		c.Cost = 1 + int64(i%2)*max(most/8, 1)
		c.Now = t
		b := newest.reserve(c)
		c.Now = t.Add(-back)
		a := older.reserve(c)
		if !sameState(a, b) || a.Limit > 0 && a.OK && a.At.Before(t) {
			s.Fatalf("a claim of %d units with a reading %v older than one granted at: %s, at %v; with that reading: %s", c.Cost, back, describe(a), a.At, describe(b))
		}
	}
	s.alternatingReadings(span)
}

// alternatingReadings makes claims alternately with a newer and an older reading: the
// units restored in between must not be credited twice.
func (s *suite) alternatingReadings(span time.Duration) {
	sub := s.newSubject(epoch)
	if _, _, dry := sub.drain(); !dry {
		return
	}
	var usages []usage
	for i := range 64 {
		now := epoch.Add(span / 4)
		if i%2 == 1 {
			now = epoch
		}
		if d := sub.reserve(throttle.Claim{Cost: 1, Now: now}); d.OK {
			usages = append(usages, usage{span / 4, 1})
		}
	}
	s.checkBound(usages, "readings that go back and forth credit time twice")
}

// irregularClocks drains the limiter at instants of clocks that do not advance evenly.
func (s *suite) irregularClocks() {
	span, _ := s.recoveryAndLargest()
	for name, steps := range map[string][]time.Duration{
		"stands still":        {0, 0, 0, 0},
		"ticks by nothing":    {1, 1, 1, 1},
		"jumps by years":      {year, 10 * year, 1},
		"steps back":          {span, -span / 2, span / 2, -3 * span, span},
		"steps back a year":   {span, -year, span},
		"jumps and returns":   {year, -year, span / 2},
		"begins before epoch": {0, span, 0},
	} {
		start := epoch
		if name == "begins before epoch" {
			start = time.Unix(0, 0)
		}
		s.drainAt(name, start, steps)
	}
}

// drainAt takes all available units at each instant that the clock shows. An instant
// before the latest one counts as that one, unless the limiter resumes there.
func (s *suite) drainAt(name string, start time.Time, steps []time.Duration) {
	sub := s.newSubject(start)
	span, _ := s.recoveryAndLargest()
	var usages []usage
	var now, latest time.Duration
	for _, step := range append([]time.Duration{0}, steps...) {
		sub.clk.add(step)
		now += step
		if s.ResumesAfterSetBack && latest-now > span {
			s.checkBound(usages, "before the clock "+name)
			usages, latest = nil, now
		}
		latest = max(latest, now)
		n, _, _ := sub.drain()
		usages = append(usages, usage{latest, n})
	}
	s.checkBound(usages, "the clock "+name)
}

// A usage is the use of n units at an instant.
type usage struct {
	at time.Duration
	n  int64
}

// checkBound fails if usages, which are in order of time, exceed the bound.
func (s *suite) checkBound(usages []usage, what string) {
	s.Helper()
	if s.Concurrency > 0 && s.Bound == nil && s.Limit.Count == 0 {
		return
	}
	largest := int64(0)
	for _, a := range usages {
		largest = max(largest, a.n)
	}
	for i := range usages {
		sum := int64(0)
		for _, a := range usages[i:] {
			sum += min(a.n, math.MaxInt64-sum)
			if w := a.at - usages[i].at; sum > s.bound(w, largest) {
				s.Fatalf("%s: %d units were used within %v, from %v on; the bound is %d", what, sum, w, usages[i].at, s.bound(w, largest))
			}
		}
	}
}
