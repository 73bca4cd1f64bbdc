// Package throttletest tests whether a throttle.Limiter meets the requirements of that
// interface and keeps its own bound.
//
//	func TestMyLimiter(t *testing.T) {
//		throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
//			return mylimiter.New(10, time.Second, clk)
//		}, throttletest.Spec{Limit: throttle.PerSecond(10)})
//	}
//
// Each requirement is a subtest. A failure reports which requirement was violated, how,
// and by which claim. No test sleeps: time is an argument. Random numbers are seeded, and
// a failure reports its seed, so it can be reproduced.
package throttletest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Spec describes the bound of a limiter, and where it differs from the requirements of
// throttle.Limiter. At least one of Limit, Bound and Concurrency must be set.
type Spec struct {
	// Limit is the limit that the limiter enforces. Unless Bound is set, the units
	// used within any span w must not exceed burst + rate*w.
	Limit throttle.Limit

	// Bound returns the maximum number of units that may be used within any span of length w,
	// including both ends. Nil means the bound of Limit. For a limiter without a bound it
	// returns math.MaxInt64.
	Bound func(w time.Duration) int64

	// Concurrency is the maximum number of units of claims that have not ended. Zero means
	// that ending a claim has no effect on later claims.
	Concurrency int64

	// AllowsDebt means that a claim of any size is granted, and the next one waits for it. The
	// bound then increases by the largest claim, and no claim is too large.
	AllowsDebt bool

	// WaitUnknown means that the Wait of a rejection may be 0, for limiters that cannot
	// predict it.
	WaitUnknown bool

	// Approximate means that the limiter estimates. It keeps its bound, but may reject a claim
	// that would fit, so its Wait, Remaining and returned units are not checked.
	Approximate bool

	// CountsRejected means that a rejected claim counts like a granted one, unless it sets
	// Waits. The Wait of its Decision must include the rejected claim itself. The limiter must
	// state it in its Traits.
	CountsRejected bool

	// RejectionAdvancesClock means that the reading of a rejected claim counts, so that older
	// readings count as that one. An AllOf takes units from one limit before it asks the next.
	RejectionAdvancesClock bool

	// AcceptsOlderReadings means that a reading of the clock older than the latest one at
	// which a claim was granted counts as itself. Even then no unit may be credited twice; a
	// claim with such a reading may get less.
	AcceptsOlderReadings bool

	// ResumesAfterSetBack means that after the clock is set back by more than the window, the
	// limiter decides by the new time. The bound then holds separately before and after.
	ResumesAfterSetBack bool

	// EndsOnce means that ending a claim a second time does nothing. Most limiters do not
	// guarantee this.
	EndsOnce bool

	// Wrap is set for a limiter that wraps others. It returns a wrapper around l, which must
	// grant what l grants. The test checks that claims and feedback are forwarded to l with all
	// their fields, that l gets back its own Decisions, that callers get those of its fields that
	// the wrapper does not decide itself, and that the Traits are true if those of l are.
	Wrap func(l throttle.Limiter) throttle.Limiter

	// Histories is the number of random histories. Zero means 2000, or 200 with -short. Use a
	// lower number if each decision is a network round trip.
	Histories int
}

// TestLimiter tests the limiters that new returns against the requirements of
// throttle.Limiter, with the differences that spec states. It calls new many times; new
// must return an unused limiter each time.
//
// The clock shows simulated time. In some tests it starts at the Unix epoch, in some it
// stands still, and in some it jumps by a year.
func TestLimiter(t *testing.T, new func(throttle.Clock) throttle.Limiter, spec Spec) {
	t.Helper()
	for _, p := range requirements {
		t.Run(p.name, func(t *testing.T) {
			run(t, p, new, spec)
		})
	}
}

// A requirement is one requirement of the interface and its test.
type requirement struct {
	name string
	test func(*suite)
}

var requirements = []requirement{
	{"a negative cost is ErrCost", (*suite).negativeCost},
	{"no cost means one unit", (*suite).zeroCost},
	{"At is the reading of the clock", (*suite).readings},
	{"a dry run takes nothing", (*suite).dryRuns},
	{"a rejection takes nothing", (*suite).rejections},
	{"a rejection of a claim that Waits takes nothing", (*suite).rejectionsOfWaits},
	{"an equal claim after Wait is granted", (*suite).waitIsSufficient},
	{"Remaining is what is granted", (*suite).remaining},
	{"a cost over the limit waits Forever", (*suite).tooLarge},
	{"Unused returns the units", (*suite).cancels},
	{"Unused works when ctx is done", (*suite).cancelsWhenDone},
	{"the report of a rejection does nothing", (*suite).cancelsRejection},
	{"a second end does nothing", (*suite).endsTwice},
	{"Ongoing does not end a claim", (*suite).ongoingThenUnused},
	{"the end of a claim releases its units", (*suite).releasesUnits},
	{"extreme feedback keeps the bound", (*suite).extremeFeedback},
	{"an older reading counts as the newest", (*suite).olderReadings},
	{"the clock may stop, jump and step back", (*suite).irregularClocks},
	{"random histories obey the bound", (*suite).histories},
	{"concurrent claims obey the bound", (*suite).concurrentClaims},
	{"Fresh means as a new limiter", (*suite).fresh},
	{"NonBlocking means that ctx is not used", (*suite).nonBlocking},
	{"EndsAtResponse means that the end of a claim releases nothing", (*suite).endsAtResponse},
	{"BooksAhead means that Ahead is obeyed", (*suite).booksAhead},
	{"Part is the one of Parts that rejects", (*suite).parts},
	{"a wrapper forwards claims, decisions and Traits", (*suite).forwarding},
	{"a wrapper hands back what it was given", (*suite).wrapper},
}

// run runs the test of p. It takes a testing.TB so that the suite can be tested.
func run(t testing.TB, p requirement, new func(throttle.Clock) throttle.Limiter, spec Spec) {
	t.Helper()
	if spec.Bound == nil && spec.Limit.Count == 0 && spec.Concurrency == 0 {
		t.Fatalf("throttletest: Spec: no bound: set Limit, Bound or Concurrency")
	}
	if spec.Histories == 0 {
		spec.Histories = 2000
		if testing.Short() {
			spec.Histories = 200
		}
	}
	p.test(&suite{TB: t, Spec: spec, new: new})
}

// A suite is the test of one requirement.
type suite struct {
	testing.TB
	Spec
	new func(throttle.Clock) throttle.Limiter
}

// epoch is the start of tests that do not depend on the start.
var epoch = time.Date(2026, 2, 28, 23, 59, 58, 123456789, time.UTC)

// newSubject returns an unused limiter and the clock that it reads.
func (s *suite) newSubject(start time.Time) *subject {
	clk := &clock{now: start}
	l := s.new(clk)
	if l == nil {
		s.Fatalf("new returned nil")
	}
	return &subject{suite: s, l: l, clk: clk}
}

// bound returns the maximum number of units that may be used within w, given the largest
// claim.
func (s *suite) bound(w time.Duration, largest int64) int64 {
	var n int64 = math.MaxInt64
	switch {
	case s.Bound != nil:
		n = s.Bound(w)
	case s.Limit.Count > 0:
		n = flow(s.Limit, w)
		n += min(burst(s.Limit), math.MaxInt64-n)
	}
	if s.AllowsDebt {
		n += min(largest, math.MaxInt64-n)
	}
	return n
}

// flow returns Count*w/Per, rounded down.
func flow(l throttle.Limit, w time.Duration) int64 {
	return ticks.MulDivDown(l.Count, int64(w), int64(l.Per))
}

func burst(l throttle.Limit) int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

// describe returns the fields of d that failure messages contain.
func describe(d throttle.Decision) string {
	verb := "rejected"
	if d.OK {
		verb = "granted"
	}
	wait := d.Wait.String()
	if d.Wait == throttle.Forever {
		wait = "Forever"
	}
	return fmt.Sprintf("%s by %q (wait %s, %d of %d left, reset after %v)", verb, d.Policy, wait, d.Remaining, d.Limit, d.ResetAfter)
}
