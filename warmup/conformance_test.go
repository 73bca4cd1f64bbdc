package warmup_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/replay"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
	"github.com/heed-go/heed/warmup"
)

// TestConformance checks all limits against the common specification of limiters. The cost
// of a claim delays the next claim, never the claim itself, as in Guava.
func TestConformance(t *testing.T) {
	ten := throttle.PerSecond(10)
	thirds := throttle.Limit{Count: 3, Per: time.Second}
	primes := throttle.Limit{Count: 999999937, Per: time.Second}
	for _, l := range []struct {
		name string
		new  func(throttle.Clock) throttle.Limiter
		spec throttletest.Spec
	}{
		{"Curve", newWarming(warmup.Config{Limit: ten, Period: 3 * time.Second}), throttletest.Spec{Bound: flow(ten, 0), AllowsDebt: true}},
		{"Curve, no warm-up", newWarming(warmup.Config{Limit: ten}), throttletest.Spec{Bound: flow(ten, 0), AllowsDebt: true}},
		{"Curve, thirds", newWarming(warmup.Config{Limit: thirds, Period: time.Second, ColdFactor: 1}), throttletest.Spec{Bound: flow(thirds, 0), AllowsDebt: true}},
		{"Curve, primes", newWarming(warmup.Config{Limit: primes, Period: time.Second, ColdFactor: 7.5}), throttletest.Spec{Bound: flow(primes, 0), AllowsDebt: true}},
		{"Curve, outage", newWarming(warmup.Config{Limit: ten, Period: time.Minute, Outage: time.Second}), throttletest.Spec{Bound: flow(ten, 0), AllowsDebt: true}},
		// When cold, a unit takes a tenth of the time. There are 8 + 2*15/(1 + .1) idle units, of which 2*15/1.1 are fast.
		{"Curve, fast when cold", newWarming(warmup.Config{Limit: throttle.PerSecond(1), Period: 15 * time.Second, ColdFactor: .1}), throttletest.Spec{Bound: flow(throttle.PerSecond(1), 28), AllowsDebt: true}},
		{"Burst", newBursty(warmup.BurstyConfig{StartFull: true, Limit: ten}), throttletest.Spec{Bound: flow(ten, 10), AllowsDebt: true}},
		{"Burst, a fraction", newBursty(warmup.BurstyConfig{StartFull: true, Limit: ten, MaxBurst: 1234 * time.Millisecond}), throttletest.Spec{Bound: flow(ten, 12.34), AllowsDebt: true}},
		{"Burst, less than one", newBursty(warmup.BurstyConfig{StartFull: true, Limit: ten, MaxBurst: time.Millisecond}), throttletest.Spec{Bound: flow(ten, .01), AllowsDebt: true}},
		{"Burst, thirds", newBursty(warmup.BurstyConfig{StartFull: true, Limit: thirds, MaxBurst: 4 * time.Second}), throttletest.Spec{Bound: flow(thirds, 12), AllowsDebt: true}},
		{"Burst, primes", newBursty(warmup.BurstyConfig{StartFull: true, Limit: primes, MaxBurst: 5}), throttletest.Spec{Bound: flow(primes, 5), AllowsDebt: true}},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && l.spec.Histories == 0 {
				l.spec.Histories = 70
			}
			throttletest.TestLimiter(t, l.new, l.spec)
		})
	}
}

// TestLimiter_agreesWithGuava checks that all decisions equal those of Guava, apart from
// Guava's own rounding.
func TestLimiter_agreesWithGuava(t *testing.T) {
	r, known, err := replay.File("testdata/guava.jsonl")
	require.NoError(t, err)
	require.True(t, known)
	require.Empty(t, r.Differences)
	r.Differences = nil
	require.Equal(t, replay.Report{File: "guava.jsonl", Scenarios: 109, Ops: 2215, Waived: 20}, r)
}

func TestNoAllocs(t *testing.T) {
	ctx := t.Context()
	wide := throttle.Limit{Count: math.MaxInt32, Per: time.Second}
	shut := warmup.New(warmup.Config{Limit: throttle.PerHour(1)})
	shut.Reserve(ctx, throttle.Claim{})
	for name, l := range map[string]throttle.Limiter{
		"Curve":           warmup.New(warmup.Config{Limit: wide, Period: time.Second, Outage: time.Second}),
		"Curve, rejected": shut,
		"Burst":           warmup.NewBursty(warmup.BurstyConfig{StartFull: true, Limit: wide}),
	} {
		for _, c := range []throttle.Claim{{Cost: 2}, {Now: time.Now()}, {DryRun: true}} {
			require.Zero(t, testing.AllocsPerRun(100, func() {
				d, _ := throttle.ReserveAhead(ctx, l, c, throttle.Forever)
				l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
			}), "%s: Reserve and Cancel", name)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				d, _ := throttle.ReserveAhead(ctx, l, c, throttle.Forever)
				l.Report(ctx, c, d, throttle.Feedback{State: throttle.Ongoing, Outcome: throttle.Failed})
				l.Report(ctx, c, d, throttle.Feedback{Cost: 1})
			}), "%s: Reserve and Observe", name)
		}
	}
}

// flow returns the bound of a rate plus saved units. Acts are rounded up to whole nanoseconds,
// so a span may be one nanosecond short.
func flow(l throttle.Limit, saved float64) func(time.Duration) int64 {
	return func(w time.Duration) int64 {
		return int64(saved + float64(w+1)*float64(l.Count)/float64(l.Per))
	}
}

func newWarming(c warmup.Config) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(warmup.New(c), clk) }
}

func newBursty(b warmup.BurstyConfig) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(warmup.NewBursty(b), clk) }
}
