package monitor_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A call is a request of a key at a time.
type call struct {
	at  time.Duration
	key string
}

// replay claims a unit from l for each call, and returns the number of rejections of each key.
func replay(l throttle.Limiter, calls []call) (rejected map[string]int) {
	rejected = map[string]int{}
	for _, c := range calls {
		d, err := l.Reserve(context.Background(), throttle.Claim{Key: c.key, Now: noon.Add(c.at)})
		if err != nil {
			panic(err)
		}
		if !d.OK {
			rejected[c.key]++
		}
	}
	return rejected
}

// limiterFunc creates a limiter that applies a limit to each key.
type limiterFunc func(throttle.Limit) throttle.Limiter

func perKey(one limiterFunc) limiterFunc {
	return func(l throttle.Limit) throttle.Limiter {
		return &keyed.Limiter{New: func(string) throttle.Limiter { return one(l) }, Clock: fixedClock(noon)}
	}
}

var (
	tokenBuckets = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(l), fixedClock(noon))
	})
	fixedWindows = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: l.Count, Per: l.Per}), fixedClock(noon))
	})
	slidingLogs = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: l}), fixedClock(noon))
	})
	leakyBuckets = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: l.Count, Per: l.Per, Burst: 1}}), fixedClock(noon))
	})
)

// evenly returns n calls of key at equal intervals.
func evenly(key string, n int, every time.Duration) (all []call) {
	for i := range n {
		all = append(all, call{time.Duration(i) * every, key})
	}
	return all
}

// bursts returns n bursts of each calls of key.
func bursts(key string, n, each int, every time.Duration) (all []call) {
	for i := range n * each {
		all = append(all, call{time.Duration(i/each)*every + time.Duration(i%each)*time.Millisecond, key})
	}
	return all
}

func merge(calls ...[]call) []call {
	all := slices.Concat(calls...)
	slices.SortStableFunc(all, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return all
}

// forClients returns the calls of n keys, each of which makes the calls that one returns.
func forClients(n int, one func(key string) []call) (all []call) {
	for i := range n {
		all = append(all, one("client "+strconv.Itoa(i))...)
	}
	return all
}

var sixty = throttle.Limit{Count: 60, Per: time.Minute}

func TestRecommend_byTraffic(t *testing.T) {
	for name, tt := range map[string]struct {
		calls []call
		kept  limiterFunc
		want  string
	}{
		"nobody came":  {nil, tokenBuckets, "Keep it: 0 claims are too few to judge by."},
		"enough":       {evenly("ann", 1000, time.Second), tokenBuckets, "Keep it: it rejects 0.0 % of all claims."},
		"rarely short": {merge(evenly("ann", 9000, time.Second), bursts("bob", 1, 80, 0)), tokenBuckets, "Keep it: it rejects 0.2 % of all claims."},
		"too tight": {evenly("ann", 5400, time.Minute/90), tokenBuckets,
			"Raise to 96 per 1m0s: 32.2 % of all claims were rejected, from keys that need no more than that."},
		"too tight for many": {merge(forClients(50, func(key string) []call { return evenly(key, 600, time.Minute/80) })), fixedWindows,
			"Raise to 85 per 1m0s: 23.3 % of all claims were rejected, from keys that need no more than that."},
		"crowds": {bursts("ann", 100, 30, time.Minute), leakyBuckets,
			"Use a token bucket of 60 per 1m0s, burst 30: 96.7 % of all claims were rejected, from keys that send bursts but keep to the rate."},
		"crowds at the edge": {bursts("ann", 100, 100, 2*time.Minute), fixedWindows,
			"Use a token bucket of 60 per 1m0s, burst 100: 40.0 % of all claims were rejected, from keys that send bursts but keep to the rate."},
		"one is greedy": {merge(evenly("eve", 5000, 10*time.Millisecond), evenly("ann", 50, time.Second)), tokenBuckets,
			"Keep it: the rejected keys wanted 82 times as much."},
		"one of many is greedy": {merge(evenly("eve", 20000, 10*time.Millisecond), forClients(50, func(key string) []call { return bursts(key, 5, 40, time.Minute) })), leakyBuckets,
			"Use a token bucket of 60 per 1m0s, burst 41: 98.5 % of all claims were rejected, from keys that send bursts but keep to the rate."},
		"they try and go": {merge(forClients(100, func(key string) []call { return evenly(key, 62, 10*time.Millisecond) }), evenly("ann", 600, time.Second)), tokenBuckets,
			"Keep it: of the rejected keys, 100.0 % were granted nothing afterwards."},
	} {
		stats := &monitor.Stats{Limit: sixty}
		replay(&monitor.Instrument{Limiter: tt.kept(sixty), Stats: stats}, tt.calls)
		n := stats.Snapshot()
		require.Equal(t, tt.want, monitor.Recommend(sixty, n).String(), "%s: %+v", name, n)
	}
}

// TestRecommend_newLimitGrantsNineteenOfTwentyKeys checks that the recommended limit would have
// granted everything to 19 of 20 keys.
func TestRecommend_newLimitGrantsNineteenOfTwentyKeys(t *testing.T) {
	actions := map[monitor.Action]int{}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := throttle.Limit{Count: 1 + r.Int64N(100), Per: time.Duration(1+r.Int64N(100)) * time.Second}
		calls := randomCalls(r, l)
		kept := []limiterFunc{tokenBuckets, fixedWindows, slidingLogs, leakyBuckets}[r.IntN(4)]
		stats := &monitor.Stats{Limit: l}
		before := replay(&monitor.Instrument{Limiter: kept(l), Stats: stats}, calls)
		recommendation := monitor.Recommend(l, stats.Snapshot())
		actions[recommendation.Action]++
		switch recommendation.Action {
		case monitor.Keep:
			require.Equal(t, l, recommendation.Limit)
			continue
		case monitor.Raise:
			requireGranted(t, fixedWindows(recommendation.Limit), calls, before, "seed %d, %v, by a window", seed, recommendation)
			requireGranted(t, slidingLogs(recommendation.Limit), calls, before, "seed %d, %v, by a log", seed, recommendation)
		}
		requireGranted(t, tokenBuckets(recommendation.Limit), calls, before, "seed %d, %v", seed, recommendation)
	}
	for _, v := range []monitor.Action{monitor.Keep, monitor.Raise, monitor.UseTokenBucket} {
		require.Greater(t, actions[v], 5, "the test sees too little: %v", actions)
	}
}

// randomCalls returns calls of a random number of keys, at equal intervals or in bursts.
func randomCalls(r *rand.Rand, l throttle.Limit) (all []call) {
	interval := l.Per / time.Duration(l.Count)
	every := time.Duration(float64(interval) * (.3 + r.Float64()))
	bunch := 1
	if r.IntN(2) == 0 {
		bunch = 1 + r.IntN(int(l.Count)+10)
	}
	for i := range 1 + r.IntN(30) {
		for _, c := range bursts(strconv.Itoa(i), 2+200/bunch, bunch, every*time.Duration(bunch)) {
			c.at += time.Duration(r.Int64N(int64(interval)))
			all = append(all, c)
		}
	}
	return merge(all)
}

func requireGranted(t *testing.T, l throttle.Limiter, calls []call, before map[string]int, format string, args ...any) {
	t.Helper()
	after := 0
	for key := range replay(l, calls) {
		if before[key] > 0 {
			after++
		}
	}
	require.LessOrEqual(t, 20*after, len(before), append([]any{format}, args...)...)
}

func TestRecommend_treatsShadowLikeLimit(t *testing.T) {
	stats := &monitor.Stats{Limit: sixty, Shadow: true}
	l := &monitor.Instrument{Limiter: throttle.Shadow(tokenBuckets(sixty), nil), Stats: stats}
	require.Empty(t, replay(l, evenly("ann", 5400, time.Minute/90)))
	require.Equal(t, "Raise to 96 per 1m0s: 32.2 % of all claims were rejected, from keys that need no more than that.",
		monitor.Recommend(sixty, stats.Snapshot()).String())
}

// TestRecommend_keepsLargerBurst checks that Raise does not lower a burst that is larger than the
// demand.
func TestRecommend_keepsLargerBurst(t *testing.T) {
	l := throttle.Limit{Count: 60, Per: time.Minute, Burst: 500}
	stats := &monitor.Stats{Limit: l}
	replay(&monitor.Instrument{Limiter: tokenBuckets(l), Stats: stats}, evenly("ann", 5400, time.Minute/90))
	require.Equal(t, throttle.Limit{Count: 96, Per: time.Minute, Burst: 500}, monitor.Recommend(l, stats.Snapshot()).Limit)
}

func TestRecommend_keepsUnknownLimit(t *testing.T) {
	stats := &monitor.Stats{}
	replay(&monitor.Instrument{Limiter: throttle.DenyAll, Stats: stats}, evenly("ann", 200, time.Second))
	require.Equal(t, "Keep it: the demand of the rejected keys is not known.", monitor.Recommend(sixty, stats.Snapshot()).String())
	require.Equal(t, "raise", monitor.Raise.String())
	require.Equal(t, "action 9", monitor.Action(9).String())
}
