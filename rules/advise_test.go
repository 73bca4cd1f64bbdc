package rules_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
)

// A call is a request of somebody at some time.
type call struct {
	at  time.Duration
	key string
}

// play asks l for all calls, and returns how often each key was refused.
func play(l throttle.Limiter, calls []call) (refused map[string]int) {
	refused = map[string]int{}
	for _, c := range calls {
		d, err := l.Reserve(context.Background(), throttle.Claim{Key: c.key, Now: noon.Add(c.at)})
		if err != nil {
			panic(err)
		}
		if !d.OK {
			refused[c.key]++
		}
	}
	return refused
}

// by says how a limit is kept for each key.
type by func(throttle.Limit) throttle.Limiter

func perKey(one by) by {
	return func(l throttle.Limit) throttle.Limiter {
		return &throttle.Keyed{New: func(string) throttle.Limiter { return one(l) }, Clock: still(noon)}
	}
}

var (
	byBuckets = perKey(func(l throttle.Limit) throttle.Limiter { return throttle.NewTokenBucket(l, still(noon)) })
	byWindows = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.NewFixedWindow(throttle.Quota{Count: l.Count, Per: l.Per}, still(noon))
	})
	byLogs = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.NewSlidingLog(throttle.Log{Limit: l}, still(noon))
	})
	byLeaks = perKey(func(l throttle.Limit) throttle.Limiter {
		return throttle.NewLeakyBucket(throttle.Leak{Limit: throttle.Limit{Count: l.Count, Per: l.Per, Burst: 1}}, still(noon))
	})
)

// evenly returns n calls of key, so far apart.
func evenly(key string, n int, every time.Duration) (all []call) {
	for i := range n {
		all = append(all, call{time.Duration(i) * every, key})
	}
	return all
}

// bunches returns n bunches of so many calls of key.
func bunches(key string, n, each int, every time.Duration) (all []call) {
	for i := range n * each {
		all = append(all, call{time.Duration(i/each)*every + time.Duration(i%each)*time.Millisecond, key})
	}
	return all
}

func together(crowds ...[]call) []call {
	all := slices.Concat(crowds...)
	slices.SortStableFunc(all, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return all
}

// many is what n keys like one do.
func many(n int, one func(key string) []call) (all []call) {
	for i := range n {
		all = append(all, one("client "+strconv.Itoa(i))...)
	}
	return all
}

var sixty = throttle.Limit{Count: 60, Per: time.Minute}

func TestAdvise_saysWhatHelps(t *testing.T) {
	for name, tt := range map[string]struct {
		calls []call
		kept  by
		want  string
	}{
		"nobody came":  {nil, byBuckets, "Leave it: 0 claims are too few to judge by."},
		"enough":       {evenly("ann", 1000, time.Second), byBuckets, "Leave it: it refuses 0.0 % of all claims."},
		"rarely short": {together(evenly("ann", 9000, time.Second), bunches("bob", 1, 80, 0)), byBuckets, "Leave it: it refuses 0.2 % of all claims."},
		"too tight": {evenly("ann", 5400, time.Minute/90), byBuckets,
			"Relax to 96 per 1m0s: 32.2 % of all claims were refused, of those who want no more than that."},
		"too tight for many": {together(many(50, func(key string) []call { return evenly(key, 600, time.Minute/80) })), byWindows,
			"Relax to 85 per 1m0s: 23.3 % of all claims were refused, of those who want no more than that."},
		"crowds": {bunches("ann", 100, 30, time.Minute), byLeaks,
			"Use a token bucket of 60 per 1m0s, burst 30: 96.7 % of all claims were refused, of those who come in crowds but keep to the rate."},
		"crowds at the edge": {bunches("ann", 100, 100, 2*time.Minute), byWindows,
			"Use a token bucket of 60 per 1m0s, burst 100: 40.0 % of all claims were refused, of those who come in crowds but keep to the rate."},
		"one is greedy": {together(evenly("eve", 5000, 10*time.Millisecond), evenly("ann", 50, time.Second)), byBuckets,
			"Leave it: those who were refused wanted 82 times as much."},
		"one of many is greedy": {together(evenly("eve", 20000, 10*time.Millisecond), many(50, func(key string) []call { return bunches(key, 5, 40, time.Minute) })), byLeaks,
			"Use a token bucket of 60 per 1m0s, burst 41: 98.5 % of all claims were refused, of those who come in crowds but keep to the rate."},
		"they try and go": {together(many(100, func(key string) []call { return evenly(key, 62, 10*time.Millisecond) }), evenly("ann", 600, time.Second)), byBuckets,
			"Leave it: of those who were refused, 100.0 % were granted nothing afterwards."},
	} {
		tally := &rules.Tally{Limit: sixty}
		play(&rules.Counted{Limiter: tt.kept(sixty), Tally: tally}, tt.calls)
		n := tally.Snapshot()
		require.Equal(t, tt.want, rules.Advise(sixty, n).String(), "%s: %+v", name, n)
	}
}

// What is advised would have granted what it promises: everything, to 19 of 20.
func TestAdvise_appliedKeepsItsPromise(t *testing.T) {
	heard := map[rules.Verdict]int{}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := throttle.Limit{Count: 1 + r.Int64N(100), Per: time.Duration(1+r.Int64N(100)) * time.Second}
		calls := someCalls(r, l)
		kept := []by{byBuckets, byWindows, byLogs, byLeaks}[r.IntN(4)]
		tally := &rules.Tally{Limit: l}
		before := play(&rules.Counted{Limiter: kept(l), Tally: tally}, calls)
		advice := rules.Advise(l, tally.Snapshot())
		heard[advice.Verdict]++
		switch advice.Verdict {
		case rules.Leave:
			require.Equal(t, l, advice.Limit)
			continue
		case rules.Relax:
			keepsPromise(t, byWindows(advice.Limit), calls, before, "seed %d, %v, by a window", seed, advice)
			keepsPromise(t, byLogs(advice.Limit), calls, before, "seed %d, %v, by a log", seed, advice)
		}
		keepsPromise(t, byBuckets(advice.Limit), calls, before, "seed %d, %v", seed, advice)
	}
	for _, v := range []rules.Verdict{rules.Leave, rules.Relax, rules.Bucket} {
		require.Greater(t, heard[v], 5, "the test sees too little: %v", heard)
	}
}

// someCalls draws how many keys call how often, evenly or in bunches.
func someCalls(r *rand.Rand, l throttle.Limit) (all []call) {
	interval := l.Per / time.Duration(l.Count)
	every := time.Duration(float64(interval) * (.3 + r.Float64()))
	bunch := 1
	if r.IntN(2) == 0 {
		bunch = 1 + r.IntN(int(l.Count)+10)
	}
	for i := range 1 + r.IntN(30) {
		for _, c := range bunches(strconv.Itoa(i), 2+200/bunch, bunch, every*time.Duration(bunch)) {
			c.at += time.Duration(r.Int64N(int64(interval)))
			all = append(all, c)
		}
	}
	return together(all)
}

func keepsPromise(t *testing.T, l throttle.Limiter, calls []call, before map[string]int, format string, args ...any) {
	t.Helper()
	after := 0
	for key := range play(l, calls) {
		if before[key] > 0 {
			after++
		}
	}
	require.LessOrEqual(t, 20*after, len(before), append([]any{format}, args...)...)
}

func TestAdvise_judgesAShadowLikeALimit(t *testing.T) {
	tally := &rules.Tally{Limit: sixty, Shadow: true}
	l := &rules.Counted{Limiter: &throttle.Shadow{Limiter: byBuckets(sixty)}, Tally: tally}
	require.Empty(t, play(l, evenly("ann", 5400, time.Minute/90)))
	require.Equal(t, "Relax to 96 per 1m0s: 32.2 % of all claims were refused, of those who want no more than that.",
		rules.Advise(sixty, tally.Snapshot()).String())
}

// A burst of one's own is not taken away when the rate grows.
func TestAdvise_keepsALargerBurst(t *testing.T) {
	l := throttle.Limit{Count: 60, Per: time.Minute, Burst: 500}
	tally := &rules.Tally{Limit: l}
	play(&rules.Counted{Limiter: byBuckets(l), Tally: tally}, evenly("ann", 5400, time.Minute/90))
	require.Equal(t, throttle.Limit{Count: 96, Per: time.Minute, Burst: 500}, rules.Advise(l, tally.Snapshot()).Limit)
}

func TestAdvise_withoutALimitKnowsNothing(t *testing.T) {
	tally := &rules.Tally{}
	play(&rules.Counted{Limiter: throttle.Blocked, Tally: tally}, evenly("ann", 200, time.Second))
	require.Equal(t, "Leave it: what those wanted who were refused is not known.", rules.Advise(sixty, tally.Snapshot()).String())
	require.Equal(t, "relax", rules.Relax.String())
	require.Equal(t, "verdict 9", rules.Verdict(9).String())
}
