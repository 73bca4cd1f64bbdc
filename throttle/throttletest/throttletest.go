// Package throttletest checks that a throttle.Limiter keeps the promises of that
// interface: those of package throttle, and yours.
//
//	func TestMyLimiter(t *testing.T) {
//		throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
//			return mylimiter.New(10, time.Second, clk)
//		}, throttletest.Spec{Limit: throttle.PerSecond(10)})
//	}
//
// Each promise is a subtest, and a failure says which promise was broken, how,
// and by which claim. Time is data: nothing sleeps. Randomness is seeded: a
// failure names its seed and comes back.
package throttletest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Spec says what a limiter is allowed to let through, and where it differs from
// the contract of throttle.Limiter. At least one of Limit, Bound and Concurrency must
// be set.
type Spec struct {
	// Limit is the limit that the limiter enforces. Unless Bound is set, the units
	// used within any span w must not exceed burst + rate*w.
	Limit throttle.Limit

	// Bound returns the most units that may be used within any span of length w, its
	// ends included. Nil: what Limit says. A limiter that bounds nothing returns
	// math.MaxInt64.
	Bound func(w time.Duration) int64

	// Concurrency is the most units that claims which have not ended may hold at one
	// time. 0: ending a claim has no effect on the next.
	Concurrency int64

	// AllowsDebt: a claim is granted whatever its size, and the next one waits for it.
	// The bound then grows by the largest claim, and no claim is too large.
	AllowsDebt bool

	// WaitUnknown: the Wait of a refusal may be 0, because only news can tell.
	WaitUnknown bool

	// Approximate: the limiter estimates. It keeps its bound, but may refuse a claim
	// that would fit, so that its Wait, Remaining and refunds are not checked.
	Approximate bool

	// CountsRefusals: a refused claim counts like a granted one, unless it Waits. Its Wait
	// is honest all the same, with itself counted. The limiter must be a RefusalCounter.
	CountsRefusals bool

	// RefusalAdvancesClock: the reading of a refused claim counts, so that older ones count
	// as that one. AllOf has to take from one limit to find out about the next.
	RefusalAdvancesClock bool

	// AcceptsOlderReadings: a reading of the clock older than one granted at counts as itself. No
	// unit is credited twice all the same; a claim made with it may get less.
	AcceptsOlderReadings bool

	// ResumesAfterSetBack: if the clock is set back by more than the window, time runs
	// on from the latest reading granted at. The bound then holds before and after.
	ResumesAfterSetBack bool

	// EndsOnce: a claim that is cancelled or observed a second time stays as it ended.
	// Most limiters cannot know, and do not promise it.
	EndsOnce bool

	// Wrap is set for a limiter that is made of others: it returns one around l,
	// which must grant what l grants. Checked is that l gets back the Decision that
	// it made, and hears what is observed.
	Wrap func(l throttle.Limiter) throttle.Limiter

	// Histories is how many random histories are played; 0: 2000, or 200 with -short.
	// Lower it for limiters whose every decision is a round trip.
	Histories int
}

// TestLimiter checks the limiter that new makes against the contract of
// throttle.Limiter, as far as spec does not say otherwise. It calls new many times
// and expects an unused limiter each time.
//
// The clock shows the time of the test. It starts at the Unix epoch in some tests,
// stands still in some, and leaps by a year in others.
func TestLimiter(t *testing.T, new func(throttle.Clock) throttle.Limiter, spec Spec) {
	t.Helper()
	for _, p := range requirements {
		t.Run(p.name, func(t *testing.T) {
			run(t, p, new, spec)
		})
	}
}

// A requirement is one sentence of the contract and the test of it.
type requirement struct {
	name string
	test func(*suite)
}

var requirements = []requirement{
	{"a negative cost is ErrCost", (*suite).negativeCost},
	{"no cost means one unit", (*suite).zeroCost},
	{"At is the reading of the clock", (*suite).readings},
	{"a dry run takes nothing", (*suite).dryRuns},
	{"a refusal takes nothing", (*suite).refusals},
	{"a refusal of a claim that Waits takes nothing", (*suite).refusalsOfWaits},
	{"an equal claim after Wait is granted", (*suite).waitIsSufficient},
	{"Remaining is what is granted", (*suite).remaining},
	{"a cost over the limit waits Forever", (*suite).tooLarge},
	{"Cancel gives back", (*suite).cancels},
	{"Cancel works when ctx is done", (*suite).cancelsWhenDone},
	{"Cancel of a refusal does nothing", (*suite).cancelsRefusal},
	{"a second end does nothing", (*suite).endsTwice},
	{"Partial feedback does not end a claim", (*suite).partialThenFinal},
	{"the end of a claim releases its units", (*suite).releasesUnits},
	{"extreme feedback keeps the bound", (*suite).extremeFeedback},
	{"an older reading counts as the newest", (*suite).olderReadings},
	{"the clock may stop, jump and step back", (*suite).irregularClocks},
	{"random histories obey the bound", (*suite).histories},
	{"concurrent claims obey the bound", (*suite).concurrentClaims},
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

// A suite is the test of one promise.
type suite struct {
	testing.TB
	Spec
	new func(throttle.Clock) throttle.Limiter
}

// epoch is where the tests begin that do not care.
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

// bound returns the most units that may be used within w, given the largest claim.
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

// describe writes the parts of d that a reader of a failure wants to see.
func describe(d throttle.Decision) string {
	verb := "refused"
	if d.OK {
		verb = "granted"
	}
	wait := d.Wait.String()
	if d.Wait == throttle.Forever {
		wait = "Forever"
	}
	return fmt.Sprintf("%s by %q (wait %s, %d of %d left, reset after %v)", verb, d.Policy, wait, d.Remaining, d.Limit, d.ResetAfter)
}
