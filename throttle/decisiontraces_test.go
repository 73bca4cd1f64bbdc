package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/limitertest"
	"github.com/heed-go/heed/throttle"
)

// TestLimiters_decisionsStayAsTheyAre compares all numbers of the decisions of each limiter on a
// random sequence of claims, cancellations, corrected costs and changed limits with
// testdata/decisions.txt. The other tests state which decisions are correct; this one shows the
// effect of a change in a diff. go test -run decisionsStayAsTheyAre -update writes the file.
func TestLimiters_decisionsStayAsTheyAre(t *testing.T) {
	ten := throttle.Limit{Count: 10, Per: time.Minute}
	anchor := time.Date(2026, 3, 1, 11, 59, 48, 0, time.UTC)
	var trace limitertest.Trace
	for i, l := range []throttle.Limiter{
		throttle.NewTokenBucket(ten),
		throttle.NewTokenBucket(throttle.Limit{Count: 7, Per: time.Minute, Burst: 3}),
		throttle.NewTokenBucket(throttle.Limit{Count: 3, Per: time.Second, Burst: 20}),
		throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: ten.WithBurst(2), Queue: 5}),
		throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: ten.WithBurst(4), Queue: 3, Split: true}),
		throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: ten.WithBurst(25), InitialDeficit: 15}),
		throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 3, Per: 20 * time.Second, Burst: 7}, Anchor: anchor}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute, Align: throttle.AtCreation}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute, Align: throttle.AtFirst}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 50, Align: throttle.EachDay, Zone: time.FixedZone("", 12*3600-130)}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten, MinGap: 4 * time.Second}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten, CountRejected: true}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten, RoundDown: true}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 5}),
		throttle.NewTickQueue(throttle.TickQueueConfig{Limit: ten, Queue: 6, Anchor: anchor}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Minute, Burst: 5}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Minute, Burst: 6, Delay: 3}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 7, Per: time.Minute, Burst: 6, NoDelay: true}),
		throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 6, MaxAge: 30 * time.Second}),
		throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(ten.WithBurst(3)), Hard: throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten})}),
		throttle.AllOf(throttle.NewTokenBucket(ten.WithBurst(3)), throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten})),
	} {
		trace.Add(t, fmt.Sprintf("%d: %T", i, l), func(throttle.Clock) throttle.Limiter { return l }, uint64(i), "")
	}
	trace.Compare(t, "testdata/decisions.txt")
}
