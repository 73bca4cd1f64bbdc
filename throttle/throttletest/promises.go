package throttletest

import (
	"errors"
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

const year = 365 * 24 * time.Hour

func (s *suite) negativeCost() {
	for _, n := range []int64{-1, math.MinInt64} {
		for _, dry := range []bool{false, true} {
			sub := s.fresh(epoch)
			before := sub.look()
			d, err := sub.l.Reserve(s.Context(), throttle.Claim{Key: key, Cost: n, DryRun: dry})
			if !errors.Is(err, throttle.ErrCost) || d.OK {
				s.Errorf("a claim of %d units: %s, error %v; want throttle.ErrCost", n, say(d), err)
			}
			if after := sub.look(); !same(before, after) {
				s.Errorf("a claim of %d units changed the limiter: before %s, after %s", n, say(before), say(after))
			}
		}
	}
}

func (s *suite) zeroCost() {
	a, b := s.fresh(epoch), s.fresh(epoch)
	for range 4 {
		zero, one := a.take(0), b.take(1)
		if !same(zero, one) {
			s.Fatalf("a claim without a cost: %s; of 1 unit: %s; both must be the same", say(zero), say(one))
		}
	}
}

func (s *suite) readings() {
	for _, start := range []time.Time{epoch, time.Unix(0, 0), time.Unix(-1, 0)} {
		sub := s.fresh(start)
		for range 4 {
			sub.clk.add(time.Second)
			now := sub.clk.Now()
			if d := sub.ask(throttle.Claim{}); !d.At.Equal(now) && (d.Limit > 0 || !d.At.IsZero()) {
				s.Errorf("a claim without Now: At is %v; the clock says %v", d.At, now)
			}
			now = now.Add(time.Millisecond)
			if d := sub.ask(throttle.Claim{Now: now}); !d.At.Equal(now) {
				s.Errorf("a claim with Now %v: At is %v", now, d.At)
			}
			sub.clk.reach(now)
		}
	}
}

// dryRuns plays the same claims on two limiters, one of which is also asked in
// between without taking, at any time and for any cost.
func (s *suite) dryRuns() {
	s.twins(func(sub *subject, ats []time.Time) {
		for _, at := range ats {
			for _, n := range []int64{1, 2, 1000, math.MaxInt64} {
				sub.ask(throttle.Claim{Cost: n, Now: at, DryRun: true})
			}
		}
	})
}

// refusals does as dryRuns, with claims that are refused.
func (s *suite) refusals() {
	if !s.CountsRefusals {
		s.refusalsTakeNothing(throttle.Claim{})
	}
}

// refusalsOfWaits does as refusals, with claims that Wait.
func (s *suite) refusalsOfWaits() {
	if s.CountsRefusals && !throttle.CountsRefusals(s.fresh(epoch).l) {
		s.Errorf("the limiter counts refusals: it must be a throttle.RefusalCounter, so that a wait counts as one")
	}
	s.refusalsTakeNothing(throttle.Claim{Waits: true})
}

func (s *suite) refusalsTakeNothing(c throttle.Claim) {
	s.twins(func(sub *subject, ats []time.Time) {
		if s.RefusalAdvances {
			ats = ats[:2]
		}
		for _, at := range ats {
			for _, n := range []int64{1, 2, 3, 1000, math.MaxInt64} {
				c.Cost, c.Now, c.DryRun = n, at, true
				if !sub.ask(c).OK {
					c.DryRun = false
					sub.ask(c)
				}
			}
		}
	})
}

// twins plays the same claims on two limiters, disturbs one of them in between,
// and expects the same answers. It disturbs with readings of now, of the past, and
// in every third round of the future, so that it shows if they move anything.
func (s *suite) twins(disturb func(*subject, []time.Time)) {
	if s.Approximate {
		return
	}
	span, most := s.scale()
	left, right := s.fresh(epoch), s.fresh(epoch)
	costs := []int64{1, most, 1, 1, max(most/2, 1), 2, most, 1, 3, most}
	for i := range 6 * len(costs) {
		now := left.clk.Now()
		ats := []time.Time{{}, now, now.Add(-span)}
		if i%3 == 1 {
			ats = append(ats, now.Add(span/3), now.Add(10*span), now.Add(year))
		}
		disturb(right, ats)
		n := min(costs[i%len(costs)], most)
		a, b := left.take(n), right.take(n)
		if !same(a, b) {
			s.Fatalf("claim %d, of %d units: %s; without the claims in between that took nothing: %s", i, n, say(b), say(a))
		}
		step := span / time.Duration(2+i%5)
		left.clk.add(step)
		right.clk.add(step)
	}
}

func (s *suite) honestWait() {
	span, most := s.scale()
	for _, n := range []int64{1, 2, max(most/2, 1), most} {
		n = min(n, most)
		for _, pause := range []time.Duration{0, 1, span / 7, span / 2, span - 1} {
			sub := s.fresh(epoch)
			if _, _, dry := sub.drain(); !dry {
				return
			}
			sub.clk.add(pause)
			sub.honest(throttle.Claim{Cost: n})
			sub.honest(throttle.Claim{Cost: n, Now: sub.clk.Now()})
		}
	}
}

// honest claims c; if that is refused, it claims the same again when the refusal
// said to.
func (s *subject) honest(c throttle.Claim) (granted throttle.Decision) {
	s.Helper()
	d := s.ask(c)
	switch {
	case d.OK:
		return d
	case d.Wait == throttle.Forever && d.Limit > 0 && c.Cost <= d.Limit:
		s.Fatalf("Reserve(%+v): %s: it is to wait Forever, though the limit is not smaller", c, say(d))
	case d.Wait == throttle.Forever || d.Wait == 0 || s.Approximate:
		return d
	}
	at := d.At.Add(d.Wait)
	s.clk.reach(at)
	if !c.Now.IsZero() {
		c.Now = at
	}
	again := s.ask(c)
	if !again.OK {
		s.Fatalf("Reserve(%+v): %s; after that wait, with nobody in between: %s", c, say(d), say(again))
	}
	return again
}

func (s *suite) remaining() {
	if s.Approximate || s.PaysLater {
		return
	}
	span, most := s.scale()
	for _, n := range []int64{0, 1, max(most/2, 1), most} {
		sub := s.fresh(epoch)
		if n > 0 {
			sub.take(n)
		}
		sub.clk.add(span / 3)
		d := sub.look()
		if d.Limit == 0 {
			return
		}
		if more := sub.ask(throttle.Claim{Cost: d.Remaining + 1, DryRun: true}); more.OK {
			s.Errorf("%d are left, and a claim of %d was %s", d.Remaining, d.Remaining+1, say(more))
		}
		if d.Remaining == 0 {
			continue
		}
		if all := sub.ask(throttle.Claim{Cost: d.Remaining, MaxWait: throttle.Forever}); !all.OK {
			s.Errorf("%d are left, and a claim of %d was %s", d.Remaining, d.Remaining, say(all))
		}
	}
}

func (s *suite) tooLarge() {
	sub := s.fresh(epoch)
	limit := sub.look().Limit
	for _, n := range []int64{limit + 1, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64} {
		for _, c := range []throttle.Claim{{Cost: n}, {Cost: n, DryRun: true}, {Cost: n, MaxWait: throttle.Forever}} {
			d := sub.ask(c)
			if limit > 0 && !s.PaysLater && (d.OK || d.Wait != throttle.Forever) {
				s.Errorf("Reserve(%+v): %s; the limit is %d: want a refusal with Wait Forever", c, say(d), limit)
			}
		}
		sub.clk.add(year)
	}
}
