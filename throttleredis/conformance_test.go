package throttleredis

import (
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
	"github.com/heed-go/heed/warmup"
)

// The clock of the suite has nanoseconds and that of the server microseconds: a period may
// appear shorter by one microsecond at its start. For the same reason an older reading
// within the same microsecond counts as equal. Larger differences are covered by
// TestLimiters_decideAsInMemory.
func TestConformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	thirds := throttle.Limit{Count: 3, Per: time.Second, Burst: 2}
	windows := func(n int64, per time.Duration) func(time.Duration) int64 {
		return func(w time.Duration) int64 { return n * int64((w+1000)/per+2) }
	}
	for _, l := range []struct {
		name string
		new  func(*Store) throttle.Limiter
		spec throttletest.Spec
	}{
		{"TokenBucket", func(s *Store) throttle.Limiter { return s.TokenBucket(ten) }, throttletest.Spec{Bound: rateBound(ten, 10)}},
		{"TokenBucket, thirds", func(s *Store) throttle.Limiter { return s.TokenBucket(thirds) }, throttletest.Spec{Bound: rateBound(thirds, 2)}},
		{"RefillBucket", func(s *Store) throttle.Limiter {
			return s.RefillBucket(throttle.RefillBucketConfig{Limit: ten})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 + 10*int64((w+time.Second+999)/time.Second) }}},
		{"LeakyBucket", func(s *Store) throttle.Limiter {
			return s.LeakyBucket(throttle.LeakyBucketConfig{Limit: thirds, Queue: 9})
		}, throttletest.Spec{Bound: rateBound(thirds, 2)}},
		{"Nginx", func(s *Store) throttle.Limiter {
			return s.Nginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 6 + int64((w+3*time.Millisecond).Seconds()*10) }}},
		{"FixedWindow", func(s *Store) throttle.Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})
		}, throttletest.Spec{Bound: windows(10, time.Second)}},
		{"FixedWindow, each day", func(s *Store) throttle.Limiter {
			return s.FixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay})
		}, throttletest.Spec{Bound: windows(10, 24*time.Hour)}},
		{"SlidingLog", func(s *Store) throttle.Limiter {
			return s.SlidingLog(throttle.SlidingLogConfig{Limit: ten, MinGap: 10 * time.Millisecond})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 * int64((w+1000)/time.Second+1) }}},
		{"SlidingLog, rejections", func(s *Store) throttle.Limiter {
			return s.SlidingLog(throttle.SlidingLogConfig{Limit: ten, CountRejected: true})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 * int64((w+1000)/time.Second+1) }, CountsRejected: true}},
		{"SlidingCounter", func(s *Store) throttle.Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten})
		}, throttletest.Spec{Bound: windows(10, time.Second)}},
		{"SubWindows", func(s *Store) throttle.Limiter {
			return s.SlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 4})
		}, throttletest.Spec{Bound: func(w time.Duration) int64 { return 10 * int64((w+1000)/(3*time.Second/4)+1) }}},
		{"WarmUp", func(s *Store) throttle.Limiter {
			return s.WarmUp(warmup.Config{Limit: throttle.PerSecond(10), Period: 3 * time.Second})
		}, throttletest.Spec{Bound: rateBound(ten, 0), AllowsDebt: true, EndsOnce: true}},
		{"Bursty", func(s *Store) throttle.Limiter {
			return s.Bursty(warmup.BurstyConfig{Limit: throttle.PerSecond(10), StartFull: true})
		}, throttletest.Spec{Bound: rateBound(ten, 10), AllowsDebt: true, EndsOnce: true}},
		{"Concurrency", func(s *Store) throttle.Limiter {
			return s.Concurrency(throttle.ConcurrencyConfig{Count: 10, MaxAge: math.MaxInt64})
		}, throttletest.Spec{Concurrency: 10, WaitUnknown: true, EndsOnce: true}},
		{"AllOf", func(s *Store) throttle.Limiter {
			return AllOf(s.TokenBucket(ten), s.LeakyBucket(throttle.LeakyBucketConfig{Limit: thirds, Queue: 9}))
		}, throttletest.Spec{Bound: rateBound(thirds, 2), EndsOnce: true}},
		{"Soft", func(s *Store) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: s.TokenBucket(thirds), Hard: s.TokenBucket(ten)})
		}, throttletest.Spec{Bound: rateBound(ten, 10), EndsOnce: true}},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			client(t) // TestLimiter runs tests below t, in which t cannot be skipped
			spec := l.spec
			spec.AcceptsOlderReadings, spec.ResumesAfterSetBack, spec.Histories = true, true, histories()
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				s := newTestStore(t)
				s.Clock, s.useLocalClock = clk, true
				return l.new(s)
			}, spec)
		})
	}
}

// histories is the number of random histories of each limiter.
func histories() int {
	if testing.Short() {
		return 2
	}
	return 6
}

// rateBound returns the maximum number of units for a rate with a burst.
func rateBound(l throttle.Limit, burst float64) func(time.Duration) int64 {
	return func(w time.Duration) int64 {
		return int64(burst + float64(l.Count)*float64(w+2000)/float64(l.Per) + 1e-6)
	}
}
