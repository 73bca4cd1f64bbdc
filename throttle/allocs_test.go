package throttle_test

import (
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/limitertest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// No hot method allocates. Every limiter has a row here; pools means that it keeps state
// of each claim in a sync.Pool.
func TestNoAllocs(t *testing.T) {
	ctx := t.Context()
	wide := throttle.Limit{Name: "wide", Count: math.MaxInt32, Per: time.Second}
	shut := throttle.Limit{Name: "shut", Count: 1, Per: time.Hour}
	bucket := throttle.NewTokenBucket(wide)
	closed := throttle.NewTokenBucket(shut)
	closed.Reserve(ctx, throttle.Claim{})
	all := throttle.AllOf(bucket, throttle.NewTokenBucket(wide), throttle.NewTokenBucket(wide))
	nested := throttle.AllOf(throttle.AllowAll, all, throttle.AllOf(bucket))
	rejected := throttle.AllOf(bucket, all, closed)
	primary := throttle.NewFallback(throttle.FallbackConfig{Primary: all, Secondary: throttle.DenyAll})
	secondary := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: nested})

	for _, row := range []struct {
		name  string
		l     throttle.Limiter
		pools bool
	}{
		{"TokenBucket", bucket, false},
		{"TokenBucket, rejected", closed, false},
		{"RefillBucket", throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: wide}), false},
		{"LeakyBucket", throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: wide, Queue: 5}), false},
		{"TickQueue", throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.Limit{Count: 1e9, Per: time.Second}, Queue: 5}), false}, // at most one tick per nanosecond
		{"Nginx", throttle.NewNginx(throttle.NginxConfig{Rate: 1000, Per: time.Second, Burst: 1e6, NoDelay: true}), false},
		{"FixedWindow", throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: math.MaxInt32, Per: time.Second}), false},
		{"FixedWindow, each day", throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: math.MaxInt32, Align: throttle.EachDay}), false},
		{"FixedWindow, from creation", throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: math.MaxInt32, Per: time.Nanosecond, Align: throttle.AtCreation}), false},
		{"SlidingLog", throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 10, Per: time.Hour}}), false},
		{"SlidingLog, rejections", throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 10, Per: time.Hour}, CountRejected: true}), false},
		{"SlidingCounter", throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: wide}), false},
		{"SubWindows", throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: wide, Parts: 12}), false},
		{"AllOf", all, true},
		{"AllOf, nested", nested, true},
		{"AllOf, rejected", rejected, true},
		{"Fallback, primary", primary, true},
		{"Fallback, secondary", secondary, true},
		{"SoftLimit", throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: closed, Hard: bucket}), true},
		{"Elastic", throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: closed, CanBorrow: func(throttle.Claim, throttle.Decision) bool { return true }}), false},
		{"Shadow", throttle.Shadow(closed, nil), false},
		{"Concurrency", throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Hour}), false},
		{"Adaptive", adaptive.New(adaptive.Config{InitialRate: 1e9}), false},
		{"Adaptive, rejected", adaptive.New(adaptive.Config{InitialRate: .5}), false},
		{"AdmissionControl", adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{}), false},
		{"Unlimited", throttle.AllowAll, false},
		{"Blocked", throttle.DenyAll, false},
	} {
		if row.pools && throttle.Racing {
			continue
		}
		limitertest.RequireNoAllocs(t, row.name, row.l)
	}
}
