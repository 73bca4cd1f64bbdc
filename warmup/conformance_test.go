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

// All of them pay later, as Guava's do: a claim waits for those before it, never for
// its own size.
func TestConformance(t *testing.T) {
	ten := throttle.PerSecond(10)
	thirds := throttle.Limit{Count: 3, Per: time.Second}
	primes := throttle.Limit{Count: 999999937, Per: time.Second}
	for _, l := range []struct {
		name string
		new  func(throttle.Clock) throttle.Limiter
		spec throttletest.Spec
	}{
		{"Curve", curve(warmup.Curve{Limit: ten, Over: 3 * time.Second}), throttletest.Spec{Bound: flow(ten, 0), PaysLater: true}},
		{"Curve, no warm-up", curve(warmup.Curve{Limit: ten}), throttletest.Spec{Bound: flow(ten, 0), PaysLater: true}},
		{"Curve, thirds", curve(warmup.Curve{Limit: thirds, Over: time.Second, Cold: 1}), throttletest.Spec{Bound: flow(thirds, 0), PaysLater: true}},
		{"Curve, primes", curve(warmup.Curve{Limit: primes, Over: time.Second, Cold: 7.5}), throttletest.Spec{Bound: flow(primes, 0), PaysLater: true}},
		{"Curve, outage", curve(warmup.Curve{Limit: ten, Over: time.Minute, Outage: time.Second}), throttletest.Spec{Bound: flow(ten, 0), PaysLater: true}},
		// When cold it takes a tenth of the time; there are 8 + 2*15/(1 + .1) idle units, of which 2*15/1.1 are fast.
		{"Curve, fast when cold", curve(warmup.Curve{Limit: throttle.PerSecond(1), Over: 15 * time.Second, Cold: .1}), throttletest.Spec{Bound: flow(throttle.PerSecond(1), 28), PaysLater: true}},
		{"Burst", bursty(warmup.Burst{Full: true, Limit: ten}), throttletest.Spec{Bound: flow(ten, 10), PaysLater: true}},
		{"Burst, a fraction", bursty(warmup.Burst{Full: true, Limit: ten, Save: 1234 * time.Millisecond}), throttletest.Spec{Bound: flow(ten, 12.34), PaysLater: true}},
		{"Burst, less than one", bursty(warmup.Burst{Full: true, Limit: ten, Save: time.Millisecond}), throttletest.Spec{Bound: flow(ten, .01), PaysLater: true}},
		{"Burst, thirds", bursty(warmup.Burst{Full: true, Limit: thirds, Save: 4 * time.Second}), throttletest.Spec{Bound: flow(thirds, 12), PaysLater: true}},
		{"Burst, primes", bursty(warmup.Burst{Full: true, Limit: primes, Save: 5}), throttletest.Spec{Bound: flow(primes, 5), PaysLater: true}},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			throttletest.TestLimiter(t, l.new, l.spec)
		})
	}
}

// Every answer is Guava's, as far as Guava's own rounding goes.
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
	shut := warmup.New(warmup.Curve{Limit: throttle.PerHour(1)}, nil)
	shut.Reserve(ctx, throttle.Claim{})
	for name, l := range map[string]*warmup.Limiter{
		"Curve":          warmup.New(warmup.Curve{Limit: wide, Over: time.Second, Outage: time.Second}, nil),
		"Curve, refused": shut,
		"Burst":          warmup.NewBursty(warmup.Burst{Full: true, Limit: wide}, nil),
	} {
		for _, c := range []throttle.Claim{{Cost: 2}, {Now: time.Now(), MaxWait: throttle.Forever}, {DryRun: true}} {
			require.Zero(t, testing.AllocsPerRun(100, func() {
				d, _ := l.Reserve(ctx, c)
				l.Cancel(ctx, c, d)
			}), "%s: Reserve and Cancel", name)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				d, _ := l.Reserve(ctx, c)
				l.Observe(ctx, c, d, throttle.Feedback{More: true, Outcome: throttle.Failed})
				l.Observe(ctx, c, d, throttle.Feedback{Cost: 1})
			}), "%s: Reserve and Observe", name)
		}
	}
}

// flow is the bound of a rate, and of so many units that are saved. Acts are rounded up
// to whole nanoseconds, so that a span may be short of one.
func flow(l throttle.Limit, saved float64) func(time.Duration) int64 {
	return func(w time.Duration) int64 {
		return int64(saved + float64(w+1)*float64(l.Count)/float64(l.Per))
	}
}

func curve(c warmup.Curve) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter { return warmup.New(c, clk) }
}

func bursty(b warmup.Burst) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter { return warmup.NewBursty(b, clk) }
}
