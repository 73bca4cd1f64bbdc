package throttletest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

func (s *suite) cancels() { s.cancelRefunds(s.Context()) }

func (s *suite) cancelsWhenDone() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	s.cancelRefunds(ctx)
}

// cancelRefunds cancels a claim at the instant at which it was granted, and later.
// Together with the units restored by time, all units must then be available again; later,
// a fraction of a unit may be lost.
func (s *suite) cancelRefunds(ctx context.Context) {
	if s.Approximate {
		return
	}
	span, most := s.recoveryAndLargest()
	for _, n := range []int64{1, max(most/2, 1), most} {
		for _, later := range []time.Duration{0, 1, span / 4, span, 3 * span} {
			for _, given := range []bool{false, true} {
				s.checkRefund(ctx, n, later, given)
			}
		}
	}
}

func (s *suite) checkRefund(ctx context.Context, n int64, later time.Duration, given bool) {
	s.Helper()
	sub := s.newSubject(epoch)
	before := sub.peek()
	c := throttle.Claim{Key: key, Cost: n}
	if given {
		c.Now = sub.clk.Now()
	}
	d := sub.reserve(c)
	if !d.OK {
		return
	}
	sub.clk.add(later)
	if given {
		c.Now = sub.clk.Now()
	}
	sub.l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	lost := int64(0)
	if later > 0 {
		lost = 1
	}
	if after := sub.peek(); after.OK != before.OK || after.Remaining < before.Remaining-lost || after.Remaining > before.Remaining {
		s.Errorf("%d units were granted and reported Unused %v later: before %s, after %s", n, later, describe(before), describe(after))
	}
}

func (s *suite) cancelsRejection() {
	sub := s.newSubject(epoch)
	_, _, dry := sub.drain()
	if !dry {
		return
	}
	d := sub.take(1)
	before := sub.peek()
	sub.cancel(1, d)
	sub.cancel(1, throttle.Decision{})
	sub.observe(1, d, throttle.Feedback{State: throttle.Ongoing})
	if after := sub.peek(); !sameState(before, after) {
		s.Errorf("a rejection was reported Unused: before %s, after %s", describe(before), describe(after))
	}
}

func (s *suite) endsTwice() {
	if !s.EndsOnce {
		return
	}
	_, most := s.recoveryAndLargest()
	n := max(most/2, 1)
	for name, end := range map[string]func(*subject, throttle.Decision){
		"Unused": func(sub *subject, d throttle.Decision) { sub.cancel(n, d) },
		"Ended":  func(sub *subject, d throttle.Decision) { sub.observe(n, d, throttle.Feedback{}) },
	} {
		sub := s.newSubject(epoch)
		first := sub.take(n)
		end(sub, first)
		sub.take(n) // a later claim keeps its units
		before := sub.peek()
		sub.cancel(n, first)
		sub.observe(n, first, throttle.Feedback{Cost: 1})
		if after := sub.peek(); !sameState(before, after) {
			s.Errorf("a claim that was reported %s was ended again: before %s, after %s", name, describe(before), describe(after))
		}
	}
}

// ongoingThenUnused checks that Ongoing does not end a claim, which can then still be reported Unused.
func (s *suite) ongoingThenUnused() {
	if s.Approximate {
		return
	}
	sub := s.newSubject(epoch)
	before := sub.peek()
	d := sub.take(1)
	if !d.OK {
		return
	}
	held := sub.peek()
	for range 3 {
		sub.observe(1, d, throttle.Feedback{State: throttle.Ongoing})
	}
	if after := sub.peek(); after.Remaining != held.Remaining {
		s.Errorf("Ongoing ended a claim: before %s, after %s", describe(held), describe(after))
	}
	sub.cancel(1, d)
	if after := sub.peek(); after.OK != before.OK || after.Remaining != before.Remaining {
		s.Errorf("a claim was reported Ongoing, then Unused: before %s, after %s", describe(before), describe(after))
	}
}

// releasesUnits checks that claims hold their units until they end, and no longer.
func (s *suite) releasesUnits() {
	if s.Concurrency == 0 {
		return
	}
	for name, end := range map[string]func(*subject, throttle.Decision){
		"Unused": func(sub *subject, d throttle.Decision) { sub.cancel(1, d) },
		"Ended":  func(sub *subject, d throttle.Decision) { sub.observe(1, d, throttle.Feedback{}) },
	} {
		sub := s.newSubject(epoch)
		for range 3 {
			held, _ := sub.hold()
			if len(held) == 0 {
				s.Errorf("nothing is granted, though each claim was reported %s", name)
			}
			for _, d := range held {
				end(sub, d)
			}
		}
	}
}

// extremeFeedback observes feedback that no correct server causes. The limiter may then
// reject claims for any time, but must not exceed the bound.
func (s *suite) extremeFeedback() {
	for _, f := range []throttle.Feedback{
		{Cost: math.MaxInt64},
		{Cost: math.MaxInt64 / 3},
		{Now: epoch.Add(200 * year)},
		{Now: epoch.Add(-200 * year)},
		{Outcome: throttle.Throttled, RetryAfter: throttle.Forever},
		{Outcome: throttle.Throttled, RetryAfter: -time.Hour, State: throttle.Ongoing},
		{Outcome: 255},
		{RemoteLimits: []throttle.RemoteLimit{{}, {Limit: math.MaxInt64, Remaining: math.MinInt64, ResetAfter: throttle.Forever, Per: -1}}},
	} {
		sub := s.newSubject(epoch)
		var usages []usage
		if d := sub.take(1); d.OK {
			usages = append(usages, usage{0, 1})
			sub.observe(1, d, f)
		}
		for i := range 3 {
			n, _, _ := sub.drain()
			usages = append(usages, usage{time.Duration(i) * time.Hour, n})
			sub.clk.add(time.Hour)
		}
		s.checkBound(usages, fmt.Sprintf("after feedback %+v", f))
	}
}
