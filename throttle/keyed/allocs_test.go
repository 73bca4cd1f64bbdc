package keyed_test

import (
	"math"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/limitertest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// No hot method allocates; pools means that a limiter keeps state of each claim in a
// sync.Pool.
func TestNoAllocs(t *testing.T) {
	ctx := t.Context()
	wide := throttle.Limit{Name: "wide", Count: math.MaxInt32, Per: time.Second}
	shut := throttle.Limit{Name: "shut", Count: 1, Per: time.Hour}
	bucket := throttle.NewTokenBucket(wide)
	closed := throttle.NewTokenBucket(shut)
	closed.Reserve(ctx, throttle.Claim{})
	all := throttle.AllOf(bucket, throttle.NewTokenBucket(wide), throttle.NewTokenBucket(wide))

	for _, row := range []struct {
		name  string
		l     throttle.Limiter
		pools bool
	}{
		{"Limiter", &keyed.Limiter{New: func(string) throttle.Limiter { return bucket }}, false},
		{"Limiter, overflow", withKeys(1000, &keyed.Limiter{New: func(string) throttle.Limiter { return closed }, Max: 1, Overflow: bucket}), false},
		{"Limiter, composed", &keyed.Limiter{New: func(string) throttle.Limiter { return all }}, true},
		{"Buckets", keyed.NewBuckets(keyed.BucketsConfig{Limit: wide}), false},
		{"Buckets, exact", keyed.NewBuckets(keyed.BucketsConfig{Limit: wide, Exact: true}), false},
		{"Buckets, spilled", withKeys(1000, keyed.NewBuckets(keyed.BucketsConfig{Limit: shut, Max: 1, Overflow: bucket})), false},
		{"Ban", keyed.NewBan(bucket, keyed.BanConfig{Rejections: 3, Within: time.Second, Duration: time.Second}), false},
		{"Ban, rejected", keyed.NewBan(closed, keyed.BanConfig{Rejections: 3, Within: time.Second, Duration: time.Millisecond}), false},
	} {
		if row.pools && keyed.Racing {
			continue
		}
		limitertest.RequireNoAllocs(t, row.name, row.l)
	}
}
