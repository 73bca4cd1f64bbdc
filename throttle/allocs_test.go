package throttle_test

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/heed-go/heed/throttle"
)

// No hot method allocates. Every limiter has its row here; pools says that it keeps
// what it needs per claim in a sync.Pool.
func TestNoAllocs(t *testing.T) {
	ctx := t.Context()
	wide := throttle.Limit{Name: "wide", Count: math.MaxInt32, Per: time.Second}
	shut := throttle.Limit{Name: "shut", Count: 1, Per: time.Hour}
	bucket := throttle.NewTokenBucket(wide, nil)
	closed := throttle.NewTokenBucket(shut, nil)
	closed.Reserve(ctx, throttle.Claim{})
	all := throttle.AllOf(bucket, throttle.NewTokenBucket(wide, nil), throttle.NewTokenBucket(wide, nil))
	nested := throttle.AllOf(throttle.Unlimited, all, throttle.AllOf(bucket))
	refused := throttle.AllOf(bucket, all, closed)
	primary := &throttle.Fallback{Primary: all, Secondary: throttle.Blocked}
	secondary := &throttle.Fallback{Primary: unreachable{}, Secondary: nested}
	fromRate := throttle.FromRate(rate.NewLimiter(1e9, 1e9), "rate", nil)

	for _, row := range []struct {
		name  string
		l     throttle.Limiter
		pools bool
	}{
		{"TokenBucket", bucket, false},
		{"TokenBucket, refused", closed, false},
		{"RefillBucket", throttle.NewRefillBucket(throttle.Refill{Limit: wide}, nil), false},
		{"LeakyBucket", throttle.NewLeakyBucket(throttle.Leak{Limit: wide, Queue: 5}, nil), false},
		{"TickQueue", throttle.NewTickQueue(throttle.Ticks{Limit: wide, Queue: 5}, nil), false},
		{"Nginx", throttle.NewNginx(throttle.LimitReq{Rate: 1000, Per: time.Second, Burst: 1e6, NoDelay: true}, nil), false},
		{"FixedWindow", throttle.NewFixedWindow(throttle.Quota{Count: math.MaxInt32, Per: time.Second}, nil), false},
		{"FixedWindow, each day", throttle.NewFixedWindow(throttle.Quota{Count: math.MaxInt32, Anchor: throttle.EachDay}, nil), false},
		{"PermitsPerPeriod", throttle.NewPermitsPerPeriod(math.MaxInt32, time.Nanosecond, nil), false},
		{"SlidingLog", throttle.NewSlidingLog(throttle.Log{Limit: throttle.Limit{Count: 10, Per: time.Hour}}, nil), false},
		{"SlidingLog, refusals", throttle.NewSlidingLog(throttle.Log{Limit: throttle.Limit{Count: 10, Per: time.Hour}, CountRefused: true}, nil), false},
		{"SlidingCounter", throttle.NewSlidingCounter(throttle.Counter{Limit: wide}, nil), false},
		{"SubWindows", throttle.NewSubWindows(throttle.Parts{Limit: wide, Parts: 12}, nil), false},
		{"AllOf", all, true},
		{"AllOf, nested", nested, true},
		{"AllOf, refused", refused, true},
		{"Fallback, primary", primary, true},
		{"Fallback, secondary", secondary, true},
		{"Keyed", &throttle.Keyed{New: func(string) throttle.Limiter { return bucket }}, false},
		{"Keyed, overflow", crowdedBy(1000, &throttle.Keyed{New: func(string) throttle.Limiter { return closed }, Max: 1, Overflow: bucket}), false},
		{"Keyed, composed", &throttle.Keyed{New: func(string) throttle.Limiter { return all }}, true},
		{"KeyedBuckets", throttle.NewKeyedBuckets(throttle.Buckets{Limit: wide}, nil), false},
		{"KeyedBuckets, exact", throttle.NewKeyedBuckets(throttle.Buckets{Limit: wide, Exact: true}, nil), false},
		{"KeyedBuckets, spilled", crowdedBy(1000, throttle.NewKeyedBuckets(throttle.Buckets{Limit: shut, Max: 1, Spill: bucket}, nil)), false},
		{"Soft", &throttle.Soft{Limit: closed, Hard: bucket}, true},
		{"Elastic", &throttle.Elastic{Limiter: closed, Spare: func(throttle.Claim, throttle.Decision) bool { return true }}, false},
		{"Shadow", &throttle.Shadow{Limiter: closed}, false},
		{"Penalty", throttle.NewPenalty(bucket, throttle.Sentence{After: 3, Within: time.Second, For: time.Second}, nil), false},
		{"Penalty, refused", throttle.NewPenalty(closed, throttle.Sentence{After: 3, Within: time.Second, For: time.Millisecond}, nil), false},
		{"InFlight", throttle.NewInFlight(throttle.Capacity{Count: 10, MaxAge: time.Hour}, nil), false},
		{"Adaptive", throttle.NewAdaptive(throttle.Adapt{Start: 1e9}, nil), false},
		{"Adaptive, refused", throttle.NewAdaptive(throttle.Adapt{Start: .5}, nil), false},
		{"AcceptRatio", throttle.NewAcceptRatio(throttle.Accept{}, nil), false},
		{"FromRate", fromRate, false},
		{"Unlimited", throttle.Unlimited, false},
		{"Blocked", throttle.Blocked, false},
	} {
		if row.pools && throttle.Racing {
			continue
		}
		for _, c := range []throttle.Claim{{Key: "api.example.com", Cost: 2}, {Now: time.Now()}, {DryRun: true}} {
			noAllocs(t, row.name+": Reserve and Cancel", func() {
				d, _ := row.l.Reserve(ctx, c)
				row.l.Cancel(ctx, c, d)
			})
			noAllocs(t, row.name+": Reserve and Observe", func() {
				d, _ := row.l.Reserve(ctx, c)
				throttle.Observe(ctx, row.l, c, d, throttle.Feedback{More: true})
				throttle.Observe(ctx, row.l, c, d, throttle.Feedback{Cost: 1})
			})
		}
	}
}

func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
