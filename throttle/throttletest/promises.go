package throttletest

import (
	"context"
	"errors"
	"fmt"
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
	if s.CountsRefusals {
		return
	}
	s.twins(func(sub *subject, ats []time.Time) {
		if s.RefusalAdvances {
			ats = ats[:2]
		}
		for _, at := range ats {
			for _, n := range []int64{1, 2, 3, 1000, math.MaxInt64} {
				c := throttle.Claim{Cost: n, Now: at, DryRun: true}
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

func (s *suite) cancels() { s.givesBack(s.Context()) }

func (s *suite) cancelsWhenDone() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	s.givesBack(ctx)
}

// givesBack cancels a claim in the instant in which it was granted, and some time
// later, when together with what time has given back all must be there again. What
// is less than a unit may be lost then.
func (s *suite) givesBack(ctx context.Context) {
	if s.Approximate {
		return
	}
	span, most := s.scale()
	for _, n := range []int64{1, max(most/2, 1), most} {
		for _, later := range []time.Duration{0, 1, span / 4, span, 3 * span} {
			for _, given := range []bool{false, true} {
				s.giveBack(ctx, n, later, given)
			}
		}
	}
}

func (s *suite) giveBack(ctx context.Context, n int64, later time.Duration, given bool) {
	s.Helper()
	sub := s.fresh(epoch)
	before := sub.look()
	c := throttle.Claim{Key: key, Cost: n}
	if given {
		c.Now = sub.clk.Now()
	}
	d := sub.ask(c)
	if !d.OK {
		return
	}
	sub.clk.add(later)
	if given {
		c.Now = sub.clk.Now()
	}
	sub.l.Cancel(ctx, c, d)
	lost := int64(0)
	if later > 0 {
		lost = 1
	}
	if after := sub.look(); after.OK != before.OK || after.Remaining < before.Remaining-lost || after.Remaining > before.Remaining {
		s.Errorf("%d units were granted and cancelled %v later: before %s, after %s", n, later, say(before), say(after))
	}
}

func (s *suite) cancelsRefusal() {
	sub := s.fresh(epoch)
	_, _, dry := sub.drain()
	if !dry {
		return
	}
	d := sub.take(1)
	before := sub.look()
	sub.cancel(1, d)
	sub.cancel(1, throttle.Decision{})
	sub.observe(1, d, throttle.Feedback{More: true})
	if after := sub.look(); !same(before, after) {
		s.Errorf("a refusal was cancelled: before %s, after %s", say(before), say(after))
	}
}

func (s *suite) endsTwice() {
	if !s.EndsOnce {
		return
	}
	_, most := s.scale()
	n := max(most/2, 1)
	for name, end := range map[string]func(*subject, throttle.Decision){
		"Cancel":  func(sub *subject, d throttle.Decision) { sub.cancel(n, d) },
		"Observe": func(sub *subject, d throttle.Decision) { sub.observe(n, d, throttle.Feedback{}) },
	} {
		sub := s.fresh(epoch)
		first := sub.take(n)
		end(sub, first)
		sub.take(n) // whoever was granted since keeps its units
		before := sub.look()
		sub.cancel(n, first)
		sub.observe(n, first, throttle.Feedback{Cost: 1})
		if after := sub.look(); !same(before, after) {
			s.Errorf("a claim that %s had ended was ended again: before %s, after %s", name, say(before), say(after))
		}
	}
}

// moreThenFinal checks that a claim which is still in use can still be cancelled.
func (s *suite) moreThenFinal() {
	if s.Approximate {
		return
	}
	sub := s.fresh(epoch)
	before := sub.look()
	d := sub.take(1)
	if !d.OK {
		return
	}
	held := sub.look()
	for range 3 {
		sub.observe(1, d, throttle.Feedback{More: true})
	}
	if after := sub.look(); after.Remaining != held.Remaining {
		s.Errorf("feedback with More ended a claim: before %s, after %s", say(held), say(after))
	}
	sub.cancel(1, d)
	if after := sub.look(); after.OK != before.OK || after.Remaining != before.Remaining {
		s.Errorf("a claim was observed with More, then cancelled: before %s, after %s", say(before), say(after))
	}
}

// freesPlaces checks that claims hold their units until they end, and no longer.
func (s *suite) freesPlaces() {
	if s.InFlight == 0 {
		return
	}
	for name, end := range map[string]func(*subject, throttle.Decision){
		"Cancel":  func(sub *subject, d throttle.Decision) { sub.cancel(1, d) },
		"Observe": func(sub *subject, d throttle.Decision) { sub.observe(1, d, throttle.Feedback{}) },
	} {
		sub := s.fresh(epoch)
		for range 3 {
			var held []throttle.Decision
			for d := sub.take(1); d.OK; d = sub.take(1) {
				held = append(held, d)
			}
			if len(held) == 0 {
				s.Errorf("nothing is granted, though each claim was ended by %s", name)
			}
			for _, d := range held {
				end(sub, d)
			}
		}
	}
}

// extremeFeedback tells the limiter what no server should say. It may then refuse
// for as long as it likes, but not let more through.
func (s *suite) extremeFeedback() {
	for _, f := range []throttle.Feedback{
		{Cost: math.MaxInt64},
		{Cost: math.MaxInt64 / 3},
		{Now: epoch.Add(200 * year)},
		{Now: epoch.Add(-200 * year)},
		{Outcome: throttle.Throttled, RetryAfter: throttle.Forever},
		{Outcome: throttle.Throttled, RetryAfter: -time.Hour, More: true},
		{Outcome: 255},
		{Windows: []throttle.Window{{}, {Limit: math.MaxInt64, Remaining: math.MinInt64, ResetAfter: throttle.Forever, Per: -1}}},
	} {
		sub := s.fresh(epoch)
		var acts []act
		if d := sub.take(1); d.OK {
			acts = append(acts, act{0, 1})
			sub.observe(1, d, f)
		}
		for i := range 3 {
			n, _, _ := sub.drain()
			acts = append(acts, act{time.Duration(i) * time.Hour, n})
			sub.clk.add(time.Hour)
		}
		s.obey(acts, fmt.Sprintf("after feedback %+v", f))
	}
}
