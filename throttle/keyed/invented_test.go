package keyed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/inventedkeys"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Invented keys deny no other client, gain nothing for a limited client, and need no more memory
// than a table has. bench/attack does the same with 10 million keys and the default sizes.
func TestInventedKeys_denyNoOther(t *testing.T) {
	const places = 1 << 13
	keys := 60_000
	if testing.Short() {
		keys = 30_000
	}
	limit := throttle.PerHour(5)
	for name, build := range map[string]func(throttle.Clock) throttle.Limiter{
		"Buckets": func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: places}), clk)
		},
		"Limiter, token bucket": func(clk throttle.Clock) throttle.Limiter {
			return &keyed.Limiter{Clock: clk, Max: places, New: bucketsOf(limit, clk)}
		},
		"Limiter, fixed window": func(clk throttle.Clock) throttle.Limiter {
			return &keyed.Limiter{Clock: clk, Max: places, New: func(string) throttle.Limiter {
				return fixedWindow(throttle.FixedWindowConfig{Count: 5, Per: 2 * time.Hour})(clk)
			}}
		},
	} {
		for _, networks := range []int{1, 2, 200} {
			for _, cost := range []int64{1, 5} {
				if testing.Short() && (cost > 1 || networks == 2) {
					continue
				}
				s := inventedkeys.Scenario{Networks: networks, Keys: keys, Cost: cost, Length: 10 * time.Minute, Moments: 10, Honest: 500}
				clk := new(inventedkeys.Clock)
				l := build(clk)
				before := heapBytes()
				r := s.Run(l, clk)
				row := fmt.Sprintf("%s, %d networks, %d units each: %+v", name, networks, cost, r)
				require.Less(t, heapBytes()-before, int64(places*1200), row)
				require.GreaterOrEqual(t, r.FirstServed, s.Honest*99/100, row)
				require.GreaterOrEqual(t, r.SecondServed, s.Honest*99/100, row)
				require.EqualValues(t, 5, r.Limited, row)
				require.LessOrEqual(t, r.Late, int64(5), row)
			}
		}
	}
}

// A key that is evicted in use and returns is granted no more than by a limiter of its own that
// is never evicted, or than by one of twice the limit for a sliding log or counter, however the keys of
// its network and of others evict it.
func TestInventedKeys_evictedKeysKeepTheirLimit(t *testing.T) {
	addr := func(key string) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, key[0], 7}) }
	limit, twice := throttle.Limit{Count: 6, Per: time.Minute}, throttle.Limit{Count: 12, Per: time.Minute}
	window := throttle.FixedWindowConfig{Count: 6, Per: time.Minute}
	log, counter := throttle.SlidingLogConfig{Limit: limit}, throttle.SlidingCounterConfig{Limit: limit}
	limiterOf := func(build maker) maker {
		return func(clk throttle.Clock) throttle.Limiter {
			return &keyed.Limiter{Clock: clk, Max: 40, Addr: addr, New: func(string) throttle.Limiter { return build(clk) }}
		}
	}
	bucket := newBucket(6, time.Minute, 0)
	for name, row := range map[string]struct {
		l, own, bound maker // bound grants what a key may be granted at most
	}{
		"Buckets": {func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: 20, Addr: addr}), clk)
		}, bucket, bucket},
		"token bucket":    {limiterOf(bucket), bucket, bucket},
		"fixed window":    {limiterOf(fixedWindow(window)), fixedWindow(window), fixedWindow(window)},
		"sliding log":     {limiterOf(slidingLog(log)), slidingLog(log), slidingLog(throttle.SlidingLogConfig{Limit: twice})},
		"sliding counter": {limiterOf(slidingCounter(counter)), slidingCounter(counter), slidingCounter(throttle.SlidingCounterConfig{Limit: twice})},
	} {
		evicted, seeds := 0, uint64(20)
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			clk := &manualClock{now: time.Unix(0, 0)}
			r, l := rand.New(rand.NewPCG(seed, 9)), row.l(clk)
			own, bounds := map[string]throttle.Limiter{}, map[string]throttle.Limiter{}
			for range 4000 {
				clk.now = clk.now.Add(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
				key := string([]byte{byte(r.IntN(6)), byte(r.IntN(1 + r.IntN(200)))})
				if own[key] == nil {
					own[key], bounds[key] = row.own(clk), row.bound(clk)
				}
				c := throttle.Claim{Key: key, Cost: 1 + r.Int64N(6), DryRun: r.IntN(8) == 0}
				d := reserve(t, l, c)
				if model := reserve(t, own[key], throttle.Claim{Cost: c.Cost, DryRun: true}); model.OK && !d.OK {
					evicted++ // it begins with what was taken from its network
				}
				if !d.OK || c.DryRun {
					continue
				}
				reserve(t, own[key], throttle.Claim{Cost: c.Cost})
				if !reserve(t, bounds[key], throttle.Claim{Cost: c.Cost}).OK {
					require.Fail(t, "a key exceeds its limit", "%s, seed %d: key %q", name, seed, key)
				}
			}
		}
		require.Greater(t, evicted, 500, name)
	}
}

// Keys of unknown networks evict each other, so that each is granted its first claim. A key that has
// used all of its limit stays, because those of the others are used less.
func TestInventedKeys_unknownNetworksAreServed(t *testing.T) {
	clk := new(manualClock)
	for name, l := range map[string]throttle.Limiter{
		"Buckets": throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3), Max: 100}), clk),
		"Limiter": &keyed.Limiter{Clock: clk, Max: 100, New: bucketsOf(throttle.PerHour(3), clk)},
	} {
		require.True(t, ask(t, l, "limited", 3).OK)
		for i := range 2000 {
			require.True(t, ask(t, l, strconv.Itoa(i), 1).OK, "%s, key %d", name, i)
			require.False(t, ask(t, l, "limited", 1).OK, name)
		}
		for i := range 2000 {
			require.True(t, ask(t, l, "all "+strconv.Itoa(i), 3).OK, "%s, key %d", name, i)
		}
	}
}

// Many goroutines that evict each other's keys exceed the limit of a key by no more than the claims
// in progress.
func TestInventedKeys_keepTheirLimitUnderContention(t *testing.T) {
	const goroutines, keys = 8, 400
	clk := new(inventedkeys.Clock)
	for name, l := range map[string]throttle.Limiter{
		"Buckets": throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(5), Max: 40}), clk),
		"exact":   throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(5), Max: 40, Exact: true}), clk),
		"Limiter": &keyed.Limiter{Clock: clk, Max: 40, New: bucketsOf(throttle.PerHour(5), clk)},
	} {
		var used [keys]atomic.Int64
		runGoroutines(goroutines, func(r *rand.Rand) {
			for range 4000 {
				i := r.IntN(keys)
				if r.IntN(2) == 0 {
					i = r.IntN(4)
				}
				key := fmt.Sprintf("ip:192.0.%d.%d", i%5, i/5)
				if d, err := l.Reserve(context.Background(), throttle.Claim{Key: key}); err == nil && d.OK {
					used[i].Add(1)
				}
			}
		})
		for i := range used {
			require.LessOrEqual(t, used[i].Load(), int64(5+goroutines), "%s: key %d", name, i)
		}
	}
}
