package keyed_test

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/throttletest"
)

func TestConformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	bucket := func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(ten), clk)
	}
	for _, l := range []struct {
		name string
		new  func(throttle.Clock) throttle.Limiter
		spec throttletest.Spec
	}{
		{"Limiter", limiter(bucket), throttletest.Spec{Limit: ten}},
		{"Limiter, windows", limiter(fixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second})), throttletest.Spec{Bound: windows(10, time.Second), Wrap: func(l throttle.Limiter) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return l }}
		}}},
		{"Limiter, composed", limiter(allOf(bucket, bucket)), throttletest.Spec{Limit: ten, EndsOnce: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return l }}
		}}},
		{"Limiter, overflow", func(clk throttle.Clock) throttle.Limiter {
			return withKeys(1, &keyed.Limiter{New: alwaysBusy, Max: 1, Overflow: bucket(clk), Clock: clk})
		}, throttletest.Spec{Limit: ten, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return withKeys(1, &keyed.Limiter{New: alwaysBusy, Max: 1, Overflow: l})
		}}},
		// A slot does not store the latest reading.
		{"Buckets", buckets(keyed.BucketsConfig{Limit: ten}), throttletest.Spec{Limit: ten, AcceptsOlderReadings: true}},
		{"Buckets, exact", buckets(keyed.BucketsConfig{Limit: ten, Exact: true}), throttletest.Spec{Limit: ten, AcceptsOlderReadings: true}},
		{"Buckets, thirds", buckets(keyed.BucketsConfig{Limit: throttle.Limit{Count: 3, Per: time.Second, Burst: 2}}),
			throttletest.Spec{Limit: throttle.Limit{Count: 3, Per: time.Second, Burst: 2}, AcceptsOlderReadings: true}},
		{"Buckets, primes", buckets(keyed.BucketsConfig{Limit: throttle.Limit{Count: 999999937, Per: time.Second, Burst: 3}}),
			throttletest.Spec{Limit: throttle.Limit{Count: 999999937, Per: time.Second, Burst: 3}, AcceptsOlderReadings: true}},
		// A Ban counts rejections.
		{"Ban", func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(keyed.NewBan(bucket(clk), keyed.BanConfig{Rejections: 3, Within: time.Second, Duration: time.Second, MaxDuration: 4 * time.Second}), clk)
		}, throttletest.Spec{Limit: ten, CountsRejected: true, Wrap: func(l throttle.Limiter) throttle.Limiter {
			return keyed.NewBan(l, keyed.BanConfig{Rejections: 1, Within: 1, Duration: 1})
		}}},
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

// windows is the bound of n units in windows of length per that follow one another.
func windows(n int64, per time.Duration) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return n * int64(w/per+2) }
}
