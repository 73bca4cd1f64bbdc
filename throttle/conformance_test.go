package throttle_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/heed-go/heed/throttle/throttletest"
)

// Every Limiter of the package has a row here.
func TestConformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	unbounded := func(time.Duration) int64 { return math.MaxInt64 }
	bucket := func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(ten), clk)
	}
	away := func(throttle.Clock) throttle.Limiter { return unreachable{} }

	for _, l := range []struct {
		name string
		new  func(throttle.Clock) throttle.Limiter
		spec throttletest.Spec
	}{
		{"TokenBucket", bucket, throttletest.Spec{Limit: ten}},
		// Waits of booked claims are rounded up to whole nanoseconds, so that a span may be
		// short of one.
		{"TokenBucket, thirds", newBucket(3, time.Second, 2), throttletest.Spec{Bound: func(w time.Duration) int64 { return 2 + int64((w+1)*3/time.Second) }}},
		{"TokenBucket, primes", newBucket(999999937, time.Second, 3), throttletest.Spec{Bound: func(w time.Duration) int64 { return 4 + int64(w) }}},
		{"TokenBucket, one a day", newBucket(1, 24*time.Hour, 1), throttletest.Spec{Limit: throttle.Limit{Count: 1, Per: 24 * time.Hour}}},
		// Steps: a tick may fall anywhere in the span.
		{"RefillBucket", refill(throttle.Limit{Count: 3, Per: time.Second, Burst: 10}), throttletest.Spec{Bound: steps(10, 3, time.Second)}},
		{"RefillBucket, more than it holds", refill(throttle.Limit{Count: 7, Per: time.Second, Burst: 4}), throttletest.Spec{Bound: steps(4, 7, time.Second)}},
		{"LeakyBucket", leaky(throttle.LeakyBucketConfig{Limit: ten}), throttletest.Spec{Limit: ten}},
		{"LeakyBucket, queue", leaky(throttle.LeakyBucketConfig{Limit: ten, Queue: math.MaxInt64}), throttletest.Spec{Limit: ten}},
		{"LeakyBucket, short queue", leaky(throttle.LeakyBucketConfig{Limit: ten, Queue: 7}), throttletest.Spec{Limit: ten}},
		// Waits are rounded up to whole nanoseconds, so that a span may be short of one.
		{"LeakyBucket, thirds", leaky(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 3, Per: time.Second, Burst: 2}, Queue: 9}), throttletest.Spec{Bound: func(w time.Duration) int64 { return 2 + int64((w+1)*3/time.Second) }}},
		{"LeakyBucket, primes", leaky(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 999999937, Per: time.Second, Burst: 3}, Queue: 5}), throttletest.Spec{Bound: func(w time.Duration) int64 { return 4 + int64(w) }}},
		// All units of a split claim are used with its last one, so that a whole bucket may be
		// used at one instant.
		{"LeakyBucket, split", leaky(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 10}, Split: true}), throttletest.Spec{Limit: ten}},
		// Times are truncated to whole milliseconds at both ends of a span, and places once more.
		{"Nginx", nginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5}), throttletest.Spec{Bound: truncated(6, 10)}},
		{"Nginx, delay", nginx(throttle.NginxConfig{Rate: 100, Per: time.Minute, Burst: 9, Delay: 5}), throttletest.Spec{Bound: truncated(10, 2)}},
		{"Nginx, nodelay", nginx(throttle.NginxConfig{Rate: 1000, Per: time.Second, Burst: 9, NoDelay: true}), throttletest.Spec{Bound: truncated(10, 1000)}},
		// TickQueue grants no claim without a wait, which most requirements need: see its own
		// tests.

		// Windows: a span touches one more than it is long, at either end.
		{"FixedWindow, epoch", constantLimiter(throttle.FixedWindowConfig{Count: 10, Per: time.Second}), throttletest.Spec{Bound: windows(10, time.Second)}},
		{"FixedWindow, first", constantLimiter(throttle.FixedWindowConfig{Count: 10, Per: time.Second, Align: throttle.AtFirst}), throttletest.Spec{Bound: windows(10, time.Second)}},
		{"FixedWindow, each day", constantLimiter(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay}), throttletest.Spec{Bound: windows(10, 24*time.Hour)}},
		{"FixedWindow, each month", constantLimiter(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachMonth}), throttletest.Spec{Bound: windows(10, 28*24*time.Hour)}},
		{"FixedWindow, from creation", constantLimiter(throttle.FixedWindowConfig{Count: 10, Per: time.Second, Align: throttle.AtCreation}), throttletest.Spec{Bound: windows(10, time.Second)}},
		// A log keeps its limit in each window it slides over: any span shorter than Per.
		{"SlidingLog", slidingLog(throttle.SlidingLogConfig{Limit: ten}), throttletest.Spec{Bound: sliding(10, time.Second)}},
		{"SlidingLog, gap", slidingLog(throttle.SlidingLogConfig{Limit: ten, MinGap: 10 * time.Millisecond}), throttletest.Spec{Bound: sliding(10, time.Second)}},
		{"SlidingLog, rejections", slidingLog(throttle.SlidingLogConfig{Limit: ten, CountRejected: true}), throttletest.Spec{Bound: sliding(10, time.Second), CountsRejected: true}},
		{"SlidingCounter", counter(throttle.SlidingCounterConfig{Limit: ten}), throttletest.Spec{Bound: windows(10, time.Second)}},
		{"SlidingCounter, floor", counter(throttle.SlidingCounterConfig{Limit: ten, RoundDown: true}), throttletest.Spec{Bound: windows(10, time.Second)}},
		// A span longer than Per less one part may touch Parts+1 of them.
		{"SubWindows", parts(throttle.SlidingCounterConfig{Limit: ten, Parts: 3}), throttletest.Spec{Bound: sliding(10, 2*time.Second/3)}},
		{"AllOf of one", allOf(bucket), throttletest.Spec{Limit: ten, EndsOnce: true, Wrap: func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(l) }}},
		{"AllOf of three", allOf(newBucket(20, time.Second, 7), bucket, newBucket(4, time.Second, 16)),
			throttletest.Spec{Limit: throttle.Limit{Count: 4, Per: time.Second, Burst: 7}, Bound: atMost(
				throttle.Limit{Count: 20, Per: time.Second, Burst: 7}, ten, throttle.Limit{Count: 4, Per: time.Second, Burst: 16}), EndsOnce: true, RejectionAdvancesClock: true,
				Wrap: func(l throttle.Limiter) throttle.Limiter {
					return throttle.AllOf(throttle.AllowAll, l, throttle.AllOf())
				}}},
		{"AllOf of none", allOf(), throttletest.Spec{Bound: unbounded, EndsOnce: true}},
		{"Fallback, primary", fallback(bucket, away), throttletest.Spec{Limit: ten, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: l, Secondary: throttle.DenyAll})
		}}},
		{"Fallback, secondary", fallback(away, bucket), throttletest.Spec{Limit: ten, EndsOnce: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: l})
		}}},
		{"AllOf in Fallback in AllOf", allOf(fallback(away, allOf(bucket, bucket)), fallback(bucket, away)), throttletest.Spec{Limit: ten, EndsOnce: true}},
		// Hard is enforced; Soft only marks.
		{"SoftLimit", soft(ten, 10), throttletest.Spec{Limit: throttle.Limit{Count: 11, Per: time.Second}, EndsOnce: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: l, Hard: throttle.AllowAll})
		}}},
		{"SoftLimit, over", func(clk throttle.Clock) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.DenyAll, Hard: bucket(clk)})
		}, throttletest.Spec{Limit: ten, EndsOnce: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.DenyAll, Hard: l})
		}}},
		{"SoftLimit, cannot borrow", elastic(bucket, false), throttletest.Spec{Limit: ten, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: l, CanBorrow: func(throttle.Claim, throttle.Decision) bool { return true }})
		}}},
		// Borrowed units have no bound and no largest claim.
		{"SoftLimit, can always borrow", elastic(bucket, true), throttletest.Spec{Bound: unbounded, AllowsDebt: true}},
		{"Shadow", func(clk throttle.Clock) throttle.Limiter {
			return throttle.Shadow(bucket(clk), nil)
		}, throttletest.Spec{Bound: unbounded, AllowsDebt: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return throttle.Shadow(l, nil)
		}}},
		// It bounds the units in use, not a rate, and cannot predict the end of a claim.
		{"Concurrency", inFlight(throttle.ConcurrencyConfig{Count: 10}), throttletest.Spec{Concurrency: 10, WaitUnknown: true, EndsOnce: true}},
		{"Concurrency, one", inFlight(throttle.ConcurrencyConfig{Count: 1}), throttletest.Spec{Concurrency: 1, WaitUnknown: true, EndsOnce: true}},
		{"Concurrency, aged", inFlight(throttle.ConcurrencyConfig{Count: 10, MaxAge: 1 << 62}), throttletest.Spec{Concurrency: 10, WaitUnknown: true, EndsOnce: true}},
		// A claim larger than the burst waits for a full bucket, and the next claim waits longer.
		{"Adaptive", adaptiveMaker(adaptive.Config{InitialRate: 10, MinRate: 10, MaxRate: 10, Burst: time.Second}), throttletest.Spec{Limit: ten, AllowsDebt: true}},
		{"Adaptive, climbing", adaptiveMaker(adaptive.Config{InitialRate: 5, MaxRate: 10, Burst: time.Second}), throttletest.Spec{Limit: ten, AllowsDebt: true}},
		{"Adaptive, thirds", adaptiveMaker(adaptive.Config{InitialRate: 1. / 3, MinRate: 1. / 3, MaxRate: 1. / 3, Burst: 9 * time.Second}), throttletest.Spec{Limit: throttle.Limit{Count: 1, Per: 3 * time.Second, Burst: 3}, AllowsDebt: true}},
		{"Adaptive, never rejected", adaptiveMaker(adaptive.Config{}), throttletest.Spec{Bound: unbounded}},
		// It has no bound and decides at random: no wait makes a grant certain.
		{"AdmissionControl", func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{}), clk)
		},
			throttletest.Spec{Bound: unbounded, WaitUnknown: true, CountsRejected: true}},
		{"the one of the example", func(clk throttle.Clock) throttle.Limiter { return nightOnly{clk} }, throttletest.Spec{Bound: unbounded}},
		{"Unlimited", func(throttle.Clock) throttle.Limiter { return throttle.AllowAll }, throttletest.Spec{Bound: unbounded}},
		{"Blocked", func(throttle.Clock) throttle.Limiter { return throttle.DenyAll }, throttletest.Spec{Bound: func(time.Duration) int64 { return 0 }}},
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

type maker = func(throttle.Clock) throttle.Limiter

func newBucket(count int64, per time.Duration, burst int64) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: count, Per: per, Burst: burst}), clk)
	}
}

func allOf(parts ...maker) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		var ls []throttle.Limiter
		for _, p := range parts {
			ls = append(ls, p(clk))
		}
		return throttle.AllOf(ls...)
	}
}

func fallback(primary, secondary maker) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.NewFallback(throttle.FallbackConfig{Primary: primary(clk), Secondary: secondary(clk)})
	}
}

// atMost returns the bound of several limits that all apply.
func atMost(ls ...throttle.Limit) func(time.Duration) int64 {
	return func(w time.Duration) int64 {
		n := int64(math.MaxInt64)
		for _, l := range ls {
			n = min(n, l.Burst+int64(math.Floor(w.Seconds()/l.Per.Seconds()*float64(l.Count)+1e-6)))
		}
		return n
	}
}

// unreachable is a limiter whose store is unavailable.
type unreachable struct{}

var errUnavailable = errors.New("store is away")

func (unreachable) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, errUnavailable
}
func (unreachable) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (unreachable) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func refill(l throttle.Limit) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: l}), clk)
	}
}

func constantLimiter(q throttle.FixedWindowConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewFixedWindow(q), clk) }
}

func slidingLog(l throttle.SlidingLogConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewSlidingLog(l), clk) }
}

func counter(l throttle.SlidingCounterConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(l), clk)
	}
}

func parts(p throttle.SlidingCounterConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(p), clk)
	}
}

// steps is the bound of a bucket into which n units come every per.
func steps(burst, n int64, per time.Duration) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return burst + n*int64((w+per-1)/per) }
}

// windows is the bound of n units in windows of length per that follow one another.
func windows(n int64, per time.Duration) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return n * int64(w/per+2) }
}

// sliding is the bound of n units in any span that is shorter than per.
func sliding(n int64, per time.Duration) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return n * int64(w/per+1) }
}

func adaptiveMaker(a adaptive.Config) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(adaptive.New(a), clk) }
}

func leaky(l throttle.LeakyBucketConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewLeakyBucket(l), clk) }
}

func nginx(l throttle.NginxConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewNginx(l), clk) }
}

// truncated is the bound of a bucket whose instants are early by up to 3 ms.
func truncated(burst, perSecond int64) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return burst + int64((w+3*time.Millisecond).Seconds()*float64(perSecond)) }
}

func soft(l throttle.Limit, percent int64) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.WithClock(throttle.NewTokenBucket(l), clk), Hard: throttle.WithClock(throttle.NewTokenBucket(l.PlusPercent(percent)), clk)})
	}
}

func elastic(inner maker, spare bool) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: inner(clk), CanBorrow: func(throttle.Claim, throttle.Decision) bool { return spare }})
	}
}

func inFlight(c throttle.ConcurrencyConfig) maker {
	return func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(throttle.NewConcurrency(c), clk) }
}
