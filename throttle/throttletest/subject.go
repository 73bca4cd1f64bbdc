package throttletest

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// A subject is one limiter under test, with its clock.
type subject struct {
	*suite
	l   throttle.Limiter
	clk *clock
}

// key is the key of all claims of the suite.
const key = "throttletest"

// reserve claims c for now.
func (s *subject) reserve(c throttle.Claim) throttle.Decision {
	s.Helper()
	return s.reserveAhead(c, 0)
}

// reserveAhead claims c for maxWait from now or earlier, if the limiter
// books ahead, and checks the requirements of every Decision.
func (s *subject) reserveAhead(c throttle.Claim, maxWait time.Duration) throttle.Decision {
	s.Helper()
	c.Key = key
	d, err := throttle.ReserveAhead(s.Context(), s.l, c, maxWait)
	switch {
	case err != nil:
		s.Fatalf("Reserve(%+v): %v; a valid claim must not fail", c, err)
	case d.Wait < 0:
		s.Fatalf("Reserve(%+v): %s: Wait is negative", c, describe(d))
	case d.OK && d.Wait > maxWait:
		s.Fatalf("Reserve(%+v): %s: it was granted for later than maxWait %v", c, describe(d), maxWait)
	case !d.OK && d.Wait == 0 && !s.WaitUnknown:
		s.Fatalf("Reserve(%+v): %s: the wait is unknown (0), which Spec.WaitUnknown does not allow", c, describe(d))
	case d.Remaining < 0 || d.ResetAfter < 0 || d.Limit < 0:
		s.Fatalf("Reserve(%+v): %s: a negative number", c, describe(d))
	case d.Limit > 0 && d.Remaining > d.Limit:
		s.Fatalf("Reserve(%+v): %s: more is left than the limit is", c, describe(d))
	}
	return d
}

// take claims n units now.
func (s *subject) take(n int64) throttle.Decision {
	s.Helper()
	return s.reserve(throttle.Claim{Cost: n})
}

// peek returns the decision on a claim of one unit without taking it.
func (s *subject) peek() throttle.Decision {
	s.Helper()
	return s.reserve(throttle.Claim{Cost: 1, DryRun: true})
}

func (s *subject) cancel(n int64, d throttle.Decision) {
	s.l.Report(s.Context(), throttle.Claim{Key: key, Cost: n}, d, throttle.Feedback{State: throttle.Unused})
}

func (s *subject) observe(n int64, d throttle.Decision, f throttle.Feedback) {
	s.l.Report(s.Context(), throttle.Claim{Key: key, Cost: n}, d, f)
}

// hold claims one unit at a time until a claim is rejected, and returns the grants. dry is false if none
// of the first 1000 is rejected.
func (s *subject) hold() (held []throttle.Decision, dry bool) {
	s.Helper()
	for range 1000 {
		d := s.take(1)
		if !d.OK {
			return held, true
		}
		held = append(held, d)
	}
	return held, false
}

// drain takes all units available now. It returns their number and the rejection that
// followed. dry is false if the limiter never rejects.
func (s *subject) drain() (taken int64, last throttle.Decision, dry bool) {
	s.Helper()
	for range 1000 {
		n := max(s.peek().Remaining, 1)
		d := s.take(n)
		if !d.OK && n > 1 {
			n = 1
			d = s.take(n)
		}
		if !d.OK {
			return taken, d, true
		}
		taken += n
	}
	return taken, last, false
}

// recoveryAndLargest returns the time in which the limiter recovers, which determines the
// pace of histories, and the largest claim to use.
func (s *suite) recoveryAndLargest() (recovery time.Duration, largest int64) {
	s.Helper()
	sub := s.newSubject(epoch)
	largest = sub.peek().Limit
	if largest == 0 {
		largest = 8
	}
	_, d, dry := sub.drain()
	recovery = d.ResetAfter
	if d.Wait != throttle.Forever {
		recovery = max(recovery, d.Wait)
	}
	if !dry || recovery == 0 {
		recovery = time.Second
	}
	return min(recovery, 1000*time.Hour), largest
}

// sameState reports whether a and b describe the same state of a limiter.
func sameState(a, b throttle.Decision) bool {
	return a.OK == b.OK && a.Wait == b.Wait && a.Limit == b.Limit && a.Remaining == b.Remaining && a.ResetAfter == b.ResetAfter
}
