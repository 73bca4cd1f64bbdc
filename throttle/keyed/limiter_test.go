package keyed_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

func ask(t *testing.T, l throttle.Limiter, key string, n int64) throttle.Decision {
	t.Helper()
	return reserve(t, l, throttle.Claim{Key: key, Cost: n})
}

func bucketsOf(l throttle.Limit, clk throttle.Clock) func(string) throttle.Limiter {
	return func(string) throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(l), clk) }
}

func TestLimiter_limitsEachKeySeparately(t *testing.T) {
	clk := clock.NewMock()
	k := &keyed.Limiter{Clock: clk, New: func(key string) throttle.Limiter {
		switch key {
		case "root":
			return throttle.AllowAll
		case "eve":
			return throttle.DenyAll
		}
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(int64(len(key)))), clk)
	}}
	for key, want := range map[string]int64{"ann": 3, "john": 4, "eve": 0, "root": 100} {
		got := int64(0)
		for range 100 {
			if ask(t, k, key, 1).OK {
				got++
			}
		}
		require.Equal(t, want, got, key)
	}
	require.Equal(t, 4, k.Len())
}

func TestLimiter_evictsUnusedLimitersFirst(t *testing.T) {
	clk := clock.NewMock()
	made := map[string]int{}
	k := &keyed.Limiter{Clock: clk, Max: 3, Addr: oneNetwork, New: func(key string) throttle.Limiter {
		made[key]++
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(6)), clk)
	}}
	ask(t, k, "long", 6)
	ask(t, k, "short", 1)
	ask(t, k, "middle", 2)
	clk.Add(10*time.Second - 1)
	shared := ask(t, k, "new", 1)
	require.True(t, shared.OK && shared.Degraded, "none could go for a key of the same network: new shares its limiter")
	clk.Add(1) // short is full again
	require.False(t, ask(t, k, "new", 1).Degraded)
	require.Equal(t, 3, k.Len())
	require.EqualValues(t, 0, ask(t, k, "long", 1).Remaining, "and what is in use stayed: it has one of six")
	require.EqualValues(t, 4, ask(t, k, "middle", 1).Remaining)
	require.True(t, ask(t, k, "short", 1).Degraded)
	require.Equal(t, 1, made["long"])
}

// While no more than Max keys are in use, a Limiter decides like an unbounded map of
// limiters, whatever it evicts.
func TestLimiter_evictionChangesNoDecision(t *testing.T) {
	for name, build := range map[string]func(throttle.Clock) throttle.Limiter{
		"bucket":       newBucket(20, time.Second, 3),
		"fixed window": fixedWindow(throttle.FixedWindowConfig{Count: 3, Per: 150 * time.Millisecond}),
		"sliding log":  slidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 3, Per: 150 * time.Millisecond}}),
		"both":         allOf(newBucket(20, time.Second, 3), newBucket(10, time.Second, 12)),
	} {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(50)
			if testing.Short() {
				seeds = 5
			}
			for seed := range seeds {
				clk := &manualClock{now: time.Unix(0, 0)}
				k := &keyed.Limiter{Clock: clk, Max: 60, New: func(string) throttle.Limiter { return build(clk) }}
				requireSameDecisions(t, k, build, clk, seed, 300)
				require.LessOrEqual(t, k.Len(), 60)
			}
		})
	}
}

// requireSameDecisions plays the same claims on l and on a limiter per key.
func requireSameDecisions(t *testing.T, l throttle.Limiter, build func(throttle.Clock) throttle.Limiter, clk *manualClock, seed uint64, keys int64) {
	t.Helper()
	type held struct {
		c          throttle.Claim
		got, model throttle.Decision
	}
	r, models := rand.New(rand.NewPCG(seed, 6)), map[string]throttle.Limiter{}
	var all []held
	for range 1500 {
		clk.now = clk.now.Add(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
		c := throttle.Claim{Key: strconv.FormatInt(r.Int64N(keys), 10), Cost: 1 + r.Int64N(4), DryRun: r.IntN(8) == 0}
		if r.IntN(2) == 0 {
			c.Now = clk.Now()
		}
		if models[c.Key] == nil {
			models[c.Key] = build(clk)
		}
		h := held{c, reserve(t, l, c), reserve(t, models[c.Key], c)}
		if want, got := visibleFields(h.model), visibleFields(h.got); want != got {
			require.Equal(t, want, got, "seed %d, claim %+v", seed, c)
		}
		if h.got.OK && !c.DryRun {
			all = append(all, h)
		}
		if len(all) == 0 || r.IntN(3) > 0 {
			continue
		}
		h = all[r.IntN(len(all))]
		all = all[:0] // of those that are held, one ends and the others never do
		h.c.Now = time.Time{}
		if r.IntN(2) == 0 {
			l.Report(t.Context(), h.c, h.got, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
			models[h.c.Key].Report(t.Context(), h.c, h.model, throttle.Feedback{Now: h.c.Now, State: throttle.Unused})
		} else {
			f := throttle.Feedback{Cost: 1 + r.Int64N(6)}
			l.Report(t.Context(), h.c, h.got, f)
			models[h.c.Key].Report(t.Context(), h.c, h.model, f)
		}
	}
}

// A manualClock is set by the test and advances immediately; a mock clock yields to other
// goroutines.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time                       { return c.now }
func (c *manualClock) After(time.Duration) <-chan time.Time { return nil }

// visibleFields is what a caller can see of d.
func visibleFields(d throttle.Decision) [7]any {
	return [7]any{d.OK, d.Degraded, d.At.UnixNano(), d.Wait, d.Limit, d.Remaining, d.ResetAfter}
}

// Without Overflow, new keys share a limiter if their own network has the most new keys. Keys of
// other networks get a limiter of their own: see TestInventedKeys_denyNoOther.
func TestLimiter_newKeysShareTheOverflowWhenFull(t *testing.T) {
	clk := clock.NewMock()
	for name, overflow := range map[string]throttle.Limiter{
		"its own": nil,
		"given":   throttle.WithClock(throttle.NewTokenBucket(throttle.PerHour(5)), clk),
	} {
		k := &keyed.Limiter{Clock: clk, Max: 2, Addr: oneNetwork, New: bucketsOf(throttle.PerHour(5), clk), Overflow: overflow}
		ask(t, k, "a", 1)
		ask(t, k, "b", 1)
		granted := 0
		for i := range 5000 {
			if d := ask(t, k, strconv.Itoa(i), 1); d.OK {
				require.True(t, d.Degraded)
				granted++
			}
		}
		require.Equal(t, 5, granted, name)
		require.EqualValues(t, 3, ask(t, k, "a", 1).Remaining, "%s: who was there before is not touched", name)
	}
}

func TestLimiter_cancelReachesTheLimiterThatGranted(t *testing.T) {
	clk := clock.NewMock()
	var made []*fakeLimiter
	k := &keyed.Limiter{Clock: clk, Max: 1, New: func(string) throttle.Limiter {
		s := granting(uint64(1000*len(made)), 100) // all of 100 are left: it may go
		made = append(made, s)
		return s
	}}
	a := ask(t, k, "a", 1)
	ask(t, k, "b", 1)
	ask(t, k, "a", 1)
	require.Len(t, made, 3, "a went for b, and b for a")

	k.Report(t.Context(), throttle.Claim{Key: "a"}, a, throttle.Feedback{State: throttle.Unused})
	require.Equal(t, made[0].granted, made[0].cancelled, "with its own Decision")
	require.Empty(t, made[2].cancelled)
	k.Report(t.Context(), throttle.Claim{Key: "a"}, a, throttle.Feedback{State: throttle.Ongoing})
	require.Equal(t, made[0].granted, made[0].observed)

	k.Report(t.Context(), throttle.Claim{Key: "a"}, throttle.Decision{OK: true}, throttle.Feedback{State: throttle.Unused})
	require.Empty(t, made[2].cancelled, "a Decision of somebody else leads nowhere")
}

func TestLimiter_cancelReachesTheOverflow(t *testing.T) {
	clk := clock.NewMock()
	for name, overflow := range map[string]*fakeLimiter{"plain": granting(7, 50), "degraded": granting(7, 50)} {
		overflow.decision.Degraded = name == "degraded"
		k := &keyed.Limiter{Clock: clk, Max: 1, New: alwaysBusy, Overflow: overflow}
		ask(t, k, "a", 1)
		d := ask(t, k, "b", 1)
		require.True(t, d.Degraded)
		k.Report(t.Context(), throttle.Claim{Key: "b"}, d, throttle.Feedback{State: throttle.Ongoing})
		k.Report(t.Context(), throttle.Claim{Key: "b"}, d, throttle.Feedback{State: throttle.Unused})
		require.Equal(t, overflow.granted, overflow.cancelled)
		require.Equal(t, overflow.granted, overflow.observed)
	}
}

// A reading ahead of the clock does not make a limiter idle.
func TestLimiter_futureReadingsEvictNothing(t *testing.T) {
	clk := clock.NewMock()
	k := &keyed.Limiter{Clock: clk, Max: 1, New: bucketsOf(throttle.PerMinute(6), clk), Overflow: throttle.AllowAll}
	b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(6), Max: 1, Overflow: throttle.AllowAll}), clk)
	for _, l := range []throttle.Limiter{k, b} {
		ask(t, l, "a", 6)
		for i := range 200 {
			reserve(t, l, throttle.Claim{Key: strconv.Itoa(i), Now: clk.Now().Add(time.Hour)})
		}
		require.False(t, ask(t, l, "a", 1).OK)
	}
}

// An evicted key that returns with an older reading is not credited twice.
func TestLimiter_olderReadingsCreditNothingTwice(t *testing.T) {
	clk := clock.NewMock()
	k := &keyed.Limiter{Clock: clk, Max: 1, New: bucketsOf(throttle.PerMinute(6), clk)}
	b := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(6), Max: 1}), clk)
	start := clk.Now()
	for _, l := range []throttle.Limiter{k, b} {
		clk.Set(start)
		reserve(t, l, throttle.Claim{Key: "a", Cost: 6})
		clk.Add(61 * time.Second)
		reserve(t, l, throttle.Claim{Key: "b"}) // a is full again, and goes
		clk.Add(time.Minute)
		require.False(t, reserve(t, l, throttle.Claim{Key: "a", DryRun: true}).Degraded, "b goes for a")
		d := reserve(t, l, throttle.Claim{Key: "a", Cost: 6, Now: start.Add(time.Second)})
		require.False(t, d.OK && d.At.Before(start.Add(time.Minute)), "12 units within a second: %+v", d)
	}
}

func TestLimiter_staysWithinMaxUnderContention(t *testing.T) {
	for name, row := range map[string]struct {
		max, keys int
	}{"one shard": {50, 200}, "many": {5000, 20000}} {
		k := &keyed.Limiter{Max: row.max, New: bucketsOf(throttle.Limit{Count: 1000, Per: time.Second, Burst: 2}, nil)}
		var maxLen atomic.Int64
		runGoroutines(8, func(r *rand.Rand) {
			for range 3000 {
				c := throttle.Claim{Key: strconv.Itoa(r.IntN(row.keys))}
				d, err := k.Reserve(context.Background(), c)
				if err == nil && d.OK && r.IntN(2) == 0 {
					k.Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				}
				maxLen.Store(max(maxLen.Load(), int64(k.Len())))
			}
		})
		require.LessOrEqual(t, maxLen.Load(), int64(row.max), name)
	}
}

// Keys that are added and evicted by many goroutines are granted no more than their limit.
func TestLimiter_keysObeyTheirLimitUnderContention(t *testing.T) {
	limit := throttle.Limit{Count: 2000, Per: time.Second, Burst: 4}
	for name, l := range map[string]throttle.Limiter{
		"Limiter": &keyed.Limiter{Max: 10, New: bucketsOf(limit, nil), Overflow: throttle.DenyAll},
		"Buckets": keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: 10, Overflow: throttle.DenyAll}),
		"exact":   keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: 10, Overflow: throttle.DenyAll, Exact: true}),
	} {
		start := time.Now()
		var used [40]atomic.Int64
		runGoroutines(8, func(r *rand.Rand) {
			for range 4000 {
				i := r.IntN(len(used))
				c := throttle.Claim{Key: strconv.Itoa(i), Cost: 1 + r.Int64N(2)}
				switch d, err := l.Reserve(context.Background(), c); {
				case err != nil || !d.OK:
				case r.IntN(4) == 0:
					l.Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				default:
					used[i].Add(c.Cost)
				}
			}
		})
		bound := 4 + int64(time.Since(start).Seconds()*2000) + 1
		for i := range used {
			require.LessOrEqual(t, used[i].Load(), bound, "%s: key %d", name, i)
		}
	}
}

func runGoroutines(goroutines uint64, do func(*rand.Rand)) {
	var wg sync.WaitGroup
	for id := range goroutines {
		wg.Go(func() { do(rand.New(rand.NewPCG(id, 7))) })
	}
	wg.Wait()
}

func TestLimiter_holdsUntilEndOnceALimiterOfNewDoes(t *testing.T) {
	k := &keyed.Limiter{New: func(key string) throttle.Limiter {
		if key == "stream" {
			return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		}
		return throttle.AllowAll
	}}
	for _, tt := range []struct {
		key   string
		holds bool
	}{{"a", false}, {"stream", true}, {"b", true}} {
		_, err := k.Reserve(t.Context(), throttle.Claim{Key: tt.key})
		require.NoError(t, err)
		require.Equal(t, tt.holds, !k.Traits().EndsAtResponse, tt.key)
	}
}

// A keyed.Limiter may block once a limiter of New may.
func TestLimiter_mayBlockOnceALimiterOfNewMay(t *testing.T) {
	k := &keyed.Limiter{New: func(key string) throttle.Limiter {
		if key == "remote" {
			return remote{throttle.AllowAll}
		}
		return throttle.AllowAll
	}}
	for _, tt := range []struct {
		key         string
		nonBlocking bool
	}{{"a", true}, {"remote", false}, {"b", false}} {
		_, err := k.Reserve(t.Context(), throttle.Claim{Key: tt.key})
		require.NoError(t, err)
		require.Equal(t, tt.nonBlocking, k.Traits().NonBlocking, tt.key)
	}
}

func TestHoldsUntilEnd_isForwarded(t *testing.T) {
	config := keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Second}
	wraps := map[string]func(throttle.Limiter) throttle.Limiter{
		"Ban": func(l throttle.Limiter) throttle.Limiter { return keyed.NewBan(l, config) },
		"Limiter, overflow": func(l throttle.Limiter) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.AllowAll }, Overflow: l}
		},
		"Buckets, overflow": func(l throttle.Limiter) throttle.Limiter {
			return keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(1), Overflow: l})
		},
	}
	for name, wrap := range wraps {
		require.True(t, !wrap(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})).Traits().EndsAtResponse, name)
		require.False(t, !wrap(throttle.NewTokenBucket(throttle.PerSecond(1))).Traits().EndsAtResponse, name)
	}
}

// remote is a limiter that may block.
type remote struct{ throttle.Limiter }

// Traits implements throttle.Limiter.
func (remote) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
