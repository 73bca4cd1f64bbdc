package throttletest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

const year = 365 * 24 * time.Hour

func (s *suite) negativeCost() {
	for _, n := range []int64{-1, math.MinInt64} {
		for _, dry := range []bool{false, true} {
			sub := s.newSubject(epoch)
			before := sub.peek()
			d, err := sub.l.Reserve(s.Context(), throttle.Claim{Key: key, Cost: n, DryRun: dry})
			if !errors.Is(err, throttle.ErrCost) || d.OK {
				s.Errorf("a claim of %d units: %s, error %v; want throttle.ErrCost", n, describe(d), err)
			}
			if after := sub.peek(); !sameState(before, after) {
				s.Errorf("a claim of %d units changed the limiter: before %s, after %s", n, describe(before), describe(after))
			}
		}
	}
}

func (s *suite) zeroCost() {
	a, b := s.newSubject(epoch), s.newSubject(epoch)
	for range 4 {
		zero, one := a.take(0), b.take(1)
		if !sameState(zero, one) {
			s.Fatalf("a claim without a cost: %s; of 1 unit: %s; both must be the same", describe(zero), describe(one))
		}
	}
}

func (s *suite) readings() {
	for _, start := range []time.Time{epoch, time.Unix(0, 0), time.Unix(-1, 0)} {
		sub := s.newSubject(start)
		for range 4 {
			sub.clk.add(time.Second)
			now := sub.clk.Now()
			if d := sub.reserve(throttle.Claim{}); !d.At.Equal(now) && (d.Limit > 0 || !d.At.IsZero()) {
				s.Errorf("a claim without Now: At is %v; the clock says %v", d.At, now)
			}
			now = now.Add(time.Millisecond)
			if d := sub.reserve(throttle.Claim{Now: now}); !d.At.Equal(now) {
				s.Errorf("a claim with Now %v: At is %v", now, d.At)
			}
			sub.clk.advanceTo(now)
		}
	}
}

// dryRuns makes the same claims on two limiters, one of which also gets dry runs in
// between, at any time and of any cost.
func (s *suite) dryRuns() {
	s.comparePair(func(sub *subject, ats []time.Time) {
		for _, at := range ats {
			for _, n := range []int64{1, 2, 1000, math.MaxInt64} {
				sub.reserve(throttle.Claim{Cost: n, Now: at, DryRun: true})
			}
		}
	})
}

// rejections does the same as dryRuns with rejected claims.
func (s *suite) rejections() {
	if !s.CountsRejected {
		s.rejectionsTakeNothing(throttle.Claim{})
	}
}

// rejectionsOfWaits does the same as rejections with claims that set Waits.
func (s *suite) rejectionsOfWaits() {
	if s.CountsRejected && !s.newSubject(epoch).l.Traits().CountsRejected {
		s.Errorf("the limiter counts rejected claims: Traits.CountsRejected must be true, so that a wait counts as one")
	}
	s.rejectionsTakeNothing(throttle.Claim{Waits: true})
}

func (s *suite) rejectionsTakeNothing(c throttle.Claim) {
	s.comparePair(func(sub *subject, ats []time.Time) {
		if s.RejectionAdvancesClock {
			ats = ats[:2]
		}
		for _, at := range ats {
			for _, n := range []int64{1, 2, 3, 1000, math.MaxInt64} {
				c.Cost, c.Now, c.DryRun = n, at, true
				if !sub.reserve(c).OK {
					c.DryRun = false
					sub.reserve(c)
				}
			}
		}
	})
}

// comparePair makes the same claims on two limiters, calls disturb on one of them in
// between, and expects the same decisions. It disturbs with readings of the present, of
// the past, and in every third round of the future, to detect whether they change
// anything.
func (s *suite) comparePair(disturb func(*subject, []time.Time)) {
	if s.Approximate {
		return
	}
	span, most := s.recoveryAndLargest()
	left, right := s.newSubject(epoch), s.newSubject(epoch)
	costs := []int64{1, most, 1, 1, max(most/2, 1), 2, most, 1, 3, most}
	rounds := 6 * len(costs)
	if testing.Short() {
		rounds /= 2 // costs, readings and steps meet in each way within 30 rounds
	}
	for i := range rounds {
		now := left.clk.Now()
		ats := []time.Time{{}, now, now.Add(-span)}
		if i%3 == 1 {
			ats = append(ats, now.Add(span/3), now.Add(10*span), now.Add(year))
		}
		disturb(right, ats)
		n := min(costs[i%len(costs)], most)
		a, b := left.take(n), right.take(n)
		if !sameState(a, b) {
			s.Fatalf("claim %d, of %d units: %s; without the claims in between that took nothing: %s", i, n, describe(b), describe(a))
		}
		step := span / time.Duration(2+i%5)
		left.clk.add(step)
		right.clk.add(step)
	}
}

func (s *suite) waitIsSufficient() {
	span, most := s.recoveryAndLargest()
	for _, n := range []int64{1, 2, max(most/2, 1), most} {
		n = min(n, most)
		for _, pause := range []time.Duration{0, 1, span / 7, span / 2, span - 1} {
			sub := s.newSubject(epoch)
			if _, _, dry := sub.drain(); !dry {
				return
			}
			sub.clk.add(pause)
			sub.reserveAfterWait(throttle.Claim{Cost: n}, 0)
			sub.reserveAfterWait(throttle.Claim{Cost: n, Now: sub.clk.Now()}, 0)
		}
	}
}

// reserveAfterWait claims c. If c is rejected, it claims c again after the Wait of the
// rejection.
func (s *subject) reserveAfterWait(c throttle.Claim, maxWait time.Duration) (granted throttle.Decision) {
	s.Helper()
	d := s.reserveAhead(c, maxWait)
	switch {
	case d.OK:
		return d
	case d.Wait == throttle.Forever && d.Limit > 0 && c.Cost <= d.Limit:
		s.Fatalf("Reserve(%+v): %s: the wait is Forever, but the claim does not exceed the limit", c, describe(d))
	case d.Wait == throttle.Forever || d.Wait == 0 || s.Approximate:
		return d
	}
	at := d.At.Add(d.Wait)
	s.clk.advanceTo(at)
	if !c.Now.IsZero() {
		c.Now = at
	}
	again := s.reserveAhead(c, maxWait)
	if !again.OK {
		s.Fatalf("Reserve(%+v): %s; after that wait, with no other claim: %s", c, describe(d), describe(again))
	}
	return again
}

func (s *suite) remaining() {
	if s.Approximate || s.AllowsDebt {
		return
	}
	span, most := s.recoveryAndLargest()
	for _, n := range []int64{0, 1, max(most/2, 1), most} {
		sub := s.newSubject(epoch)
		if n > 0 {
			sub.take(n)
		}
		sub.clk.add(span / 3)
		d := sub.peek()
		if d.Limit == 0 {
			return
		}
		if more := sub.reserve(throttle.Claim{Cost: d.Remaining + 1, DryRun: true}); more.OK {
			s.Errorf("%d are left, and a claim of %d was %s", d.Remaining, d.Remaining+1, describe(more))
		}
		if d.Remaining == 0 {
			continue
		}
		if all := sub.reserveAhead(throttle.Claim{Cost: d.Remaining}, throttle.Forever); !all.OK {
			s.Errorf("%d are left, and a claim of %d was %s", d.Remaining, d.Remaining, describe(all))
		}
	}
}

func (s *suite) tooLarge() {
	sub := s.newSubject(epoch)
	limit := sub.peek().Limit
	for _, n := range []int64{limit + 1, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64} {
		for _, tt := range []struct {
			claim   throttle.Claim
			maxWait time.Duration
		}{{throttle.Claim{Cost: n}, 0}, {throttle.Claim{Cost: n, DryRun: true}, 0}, {throttle.Claim{Cost: n}, throttle.Forever}} {
			c := tt.claim
			d := sub.reserveAhead(c, tt.maxWait)
			if limit > 0 && !s.AllowsDebt && (d.OK || d.Wait != throttle.Forever) {
				s.Errorf("Reserve(%+v): %s; the limit is %d: want a rejection with Wait Forever", c, describe(d), limit)
			}
		}
		sub.clk.add(year)
	}
}
