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

// key is the share that all claims of the suite belong to.
const key = "throttletest"

// ask claims c and checks what holds for every answer.
func (s *subject) ask(c throttle.Claim) throttle.Decision {
	c.Key = key
	d, err := s.l.Reserve(s.Context(), c)
	switch {
	case err != nil:
		s.Fatalf("Reserve(%+v): %v; a limiter that is asked properly decides", c, err)
	case d.Wait < 0:
		s.Fatalf("Reserve(%+v): %s: Wait is negative", c, say(d))
	case d.OK && d.Wait > c.MaxWait:
		s.Fatalf("Reserve(%+v): %s: it was granted for later than MaxWait", c, say(d))
	case !d.OK && d.Wait == 0 && !s.WaitUnknown:
		s.Fatalf("Reserve(%+v): %s: the wait is said to be unknown (0), which Spec.WaitUnknown does not allow", c, say(d))
	case d.Remaining < 0 || d.ResetAfter < 0 || d.Limit < 0:
		s.Fatalf("Reserve(%+v): %s: a negative number", c, say(d))
	case d.Limit > 0 && d.Remaining > d.Limit:
		s.Fatalf("Reserve(%+v): %s: more is left than the limit is", c, say(d))
	}
	return d
}

// take claims n units now.
func (s *subject) take(n int64) throttle.Decision {
	s.Helper()
	return s.ask(throttle.Claim{Cost: n})
}

// look returns what a claim of one unit would get.
func (s *subject) look() throttle.Decision {
	s.Helper()
	return s.ask(throttle.Claim{Cost: 1, DryRun: true})
}

func (s *subject) cancel(n int64, d throttle.Decision) {
	s.l.Cancel(s.Context(), throttle.Claim{Key: key, Cost: n}, d)
}

func (s *subject) observe(n int64, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(s.Context(), s.l, throttle.Claim{Key: key, Cost: n}, d, f)
}

// drain takes all that can be had now, and returns how much that was and the
// refusal that came then. It gives up on limiters that never refuse.
func (s *subject) drain() (taken int64, last throttle.Decision, dry bool) {
	s.Helper()
	for range 1000 {
		n := max(s.look().Remaining, 1)
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

// scale returns a span in which the limiter recovers, so that histories are played
// at its own pace, and the largest claim that is worth making.
func (s *suite) scale() (span time.Duration, most int64) {
	s.Helper()
	sub := s.fresh(epoch)
	most = sub.look().Limit
	if most == 0 {
		most = 8
	}
	_, d, dry := sub.drain()
	span = d.ResetAfter
	if d.Wait != throttle.Forever {
		span = max(span, d.Wait)
	}
	if !dry || span == 0 {
		span = time.Second
	}
	return min(span, 1000*time.Hour), most
}

// same reports whether a and b say the same about the state of a limiter.
func same(a, b throttle.Decision) bool {
	return a.OK == b.OK && a.Wait == b.Wait && a.Limit == b.Limit && a.Remaining == b.Remaining && a.ResetAfter == b.ResetAfter
}
