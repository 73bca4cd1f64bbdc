package throttle

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A remote is a limiter that may block.
type remote struct{ Limiter }

func (l remote) Traits() Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = false
	return t
}

// TestTraits_wrappersForwardNonBlocking also checks a wrapper that only embeds a limiter.
func TestTraits_wrappersForwardNonBlocking(t *testing.T) {
	local, far := NewTokenBucket(PerSecond(1)), remote{AllowAll}
	for _, tt := range []struct {
		l    Limiter
		want bool
	}{
		{local, true}, {AllowAll, true}, {DenyAll, true}, {far, false}, {struct{ Limiter }{local}, true},
		{AllOf(local, AllowAll), true}, {AllOf(local, far), false}, {AllOf(), true},
		{NewFallback(FallbackConfig{Primary: local, Secondary: AllowAll}), true}, {NewFallback(FallbackConfig{Primary: far, Secondary: local}), false}, {NewFallback(FallbackConfig{Primary: local, Secondary: far}), false},
		{NewSoftLimit(SoftLimitConfig{Soft: local}), true}, {NewSoftLimit(SoftLimitConfig{Soft: far}), false}, {NewSoftLimit(SoftLimitConfig{Soft: local, Hard: local}), true},
		{NewSoftLimit(SoftLimitConfig{Soft: local, Hard: far}), false}, {NewSoftLimit(SoftLimitConfig{Soft: far, Hard: local}), false}, {Shadow(local, nil), true},
	} {
		require.Equal(t, tt.want, tt.l.Traits().NonBlocking, "%T", tt.l)
	}
}

// isFresh reports whether a dry run on l at now is Fresh.
func isFresh(t *testing.T, l Limiter, now time.Time) bool {
	t.Helper()
	d, err := l.Reserve(t.Context(), Claim{Now: now, DryRun: true})
	require.NoError(t, err)
	return d.Fresh
}

// A limiter that wraps others is Fresh if all of them are, and counts rejections if one of them
// does.
func TestDecision_freshOfWrappers(t *testing.T) {
	now := time.Unix(0, 0)
	idle := NewTokenBucket(PerHour(1))
	busy := NewTokenBucket(PerHour(1))
	_, err := busy.Reserve(t.Context(), Claim{Now: now})
	require.NoError(t, err)
	counting := NewSlidingLog(SlidingLogConfig{Limit: PerHour(1), CountRejected: true})
	for _, tt := range []struct {
		wrap          func(a, b Limiter) Limiter
		fresh, counts bool // if b does, and a does not
	}{
		{func(_, b Limiter) Limiter { return b }, true, true},
		{func(a, b Limiter) Limiter { return AllOf(a, b) }, false, true},
		{func(a, b Limiter) Limiter { return AllOf(b, a) }, false, true},
		{func(a, b Limiter) Limiter { return NewFallback(FallbackConfig{Primary: a, Secondary: b}) }, false, true},
		{func(a, b Limiter) Limiter { return NewFallback(FallbackConfig{Primary: b, Secondary: a}) }, false, true},
		{func(a, b Limiter) Limiter { return NewSoftLimit(SoftLimitConfig{Soft: a, Hard: b}) }, false, true},
		{func(a, b Limiter) Limiter { return NewSoftLimit(SoftLimitConfig{Soft: b, Hard: a}) }, false, true},
		{func(_, b Limiter) Limiter { return NewSoftLimit(SoftLimitConfig{Soft: b}) }, true, true},
		{func(a, _ Limiter) Limiter { return NewSoftLimit(SoftLimitConfig{Soft: a}) }, false, false},
		{func(_, b Limiter) Limiter { return Shadow(b, nil) }, true, true},
		{func(_, _ Limiter) Limiter { return AllowAll }, true, false},
	} {
		l := tt.wrap(busy, idle)
		require.Equal(t, tt.fresh, isFresh(t, l, now), "%T", l)
		require.True(t, isFresh(t, tt.wrap(idle, idle), now), "%T", l)
		require.Equal(t, tt.counts, tt.wrap(idle, counting).Traits().CountsRejected, "%T", l)
		require.False(t, tt.wrap(idle, idle).Traits().CountsRejected, "%T", l)
	}
}

// TestDecision_freshOnlyInDryRuns also checks limiters that reject every claim.
func TestDecision_freshOnlyInDryRuns(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, l := range []Limiter{AllowAll, DenyAll, AllOf(), AllOf(NewTokenBucket(PerHour(9)), DenyAll), AllOf(DenyAll, NewTokenBucket(PerHour(9))), NewConcurrency(ConcurrencyConfig{Count: 1})} {
		require.True(t, isFresh(t, l, now), "%T", l)
		d, err := l.Reserve(t.Context(), Claim{Now: now})
		require.NoError(t, err)
		require.False(t, d.Fresh, "%T", l)
	}
}

// A TickQueue is Fresh once its last booked tick has passed.
func TestTickQueue_fresh(t *testing.T) {
	now := time.Now()
	q := NewTickQueue(TickQueueConfig{Limit: PerSecond(1), Queue: 3, Anchor: now})
	require.True(t, isFresh(t, q, now))
	d, err := ReserveAhead(t.Context(), q, Claim{Now: now, Cost: 2}, Forever)
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, d.Wait)
	require.False(t, isFresh(t, q, now.Add(2*time.Second-1)))
	require.True(t, isFresh(t, q, now.Add(2*time.Second)))
}

// TestDecision_queueBoundOfEachLimiter checks how many units may wait, according to a rejection of a claim
// with Waits.
func TestDecision_queueBoundOfEachLimiter(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		l     Limiter
		claim Claim
		bound int64
	}{
		{NewLeakyBucket(LeakyBucketConfig{Limit: PerHour(1)}), Claim{Waits: true}, -1},
		{NewLeakyBucket(LeakyBucketConfig{Limit: PerHour(1), Queue: 5}), Claim{Waits: true}, 5},
		{NewLeakyBucket(LeakyBucketConfig{Limit: PerHour(1), Queue: 5}), Claim{}, 0},
		{NewLeakyBucket(LeakyBucketConfig{Limit: PerHour(1), Queue: math.MaxInt64 - 1}), Claim{Waits: true}, math.MaxInt64 - 1},
		{NewLeakyBucket(LeakyBucketConfig{Limit: PerHour(1), Queue: math.MaxInt64}), Claim{Waits: true}, 0},
		{NewNginx(NginxConfig{Rate: 1, Per: time.Minute}), Claim{Waits: true}, -1},
		{NewNginx(NginxConfig{Rate: 1, Per: time.Minute, Burst: 3000, Delay: 2000}), Claim{Waits: true, Cost: 2001}, 1000},
		{NewNginx(NginxConfig{Rate: 1, Per: time.Minute, Burst: 3000, Delay: 2000}), Claim{Cost: 2001}, 0},
		{NewNginx(NginxConfig{Rate: 1, Per: time.Minute, Burst: 3000, NoDelay: true}), Claim{Waits: true, Cost: 3001}, -1},
		{NewTickQueue(TickQueueConfig{Limit: PerHour(1), Queue: 3}), Claim{Waits: true}, 3},
		{NewTokenBucket(PerHour(1)), Claim{Waits: true}, 0},
	} {
		tt.claim.Now = now
		d, err := tt.l.Reserve(t.Context(), tt.claim)
		for err == nil && d.OK {
			d, err = tt.l.Reserve(t.Context(), tt.claim)
		}
		require.NoError(t, err)
		require.Equal(t, tt.bound, d.QueueBound, "%T, %+v", tt.l, tt.claim)
	}
}

// A claim that waits for a TickQueue may be as large as the queue.
func TestTickQueue_waitsForAsManyTicksAsTheQueueHas(t *testing.T) {
	now := time.Now()
	q := NewTickQueue(TickQueueConfig{Limit: PerSecond(1), Queue: 3, Anchor: now})
	for cost, want := range map[int64]time.Duration{1: time.Second, 3: 3 * time.Second, 4: Forever} {
		d, err := q.Reserve(t.Context(), Claim{Now: now, Cost: cost, Waits: true})
		require.NoError(t, err)
		require.Equal(t, want, d.Wait, cost)
		require.EqualValues(t, 3, d.Remaining)
	}
}

// TestLimiters_settleOnlyGrants cancels and observes claims that were not granted, or have a
// negative cost: that changes nothing.
func TestLimiters_settleOnlyGrants(t *testing.T) {
	now := time.Unix(1e9, 0)
	limit := Limit{Count: 4, Per: time.Hour, Burst: 4}
	for _, l := range []Limiter{
		NewTokenBucket(limit), NewRefillBucket(RefillBucketConfig{Limit: limit}), NewLeakyBucket(LeakyBucketConfig{Limit: limit, Queue: 2}),
		NewFixedWindow(FixedWindowConfig{Count: 4, Per: time.Hour}), NewSlidingLog(SlidingLogConfig{Limit: limit}),
		NewSlidingCounter(SlidingCounterConfig{Limit: limit}), NewSlidingCounter(SlidingCounterConfig{Limit: limit, Parts: 4}),
		NewNginx(NginxConfig{Rate: 4, Per: time.Hour, Burst: 3, NoDelay: true}), NewConcurrency(ConcurrencyConfig{Count: 4}),
		NewTickQueue(TickQueueConfig{Limit: limit, Queue: 4, Anchor: now}),
	} {
		taken, err := ReserveAhead(t.Context(), l, Claim{Now: now, Cost: 3}, Forever)
		require.NoError(t, err)
		require.True(t, taken.OK, "%T", l)
		state := func() Decision {
			d, err := l.Reserve(t.Context(), Claim{Now: now, Cost: 1, DryRun: true})
			require.NoError(t, err)
			return d
		}
		before := state()
		rejected, err := l.Reserve(t.Context(), Claim{Now: now, Cost: 4})
		require.NoError(t, err)
		require.False(t, rejected.OK, "%T", l)
		for _, s := range []struct {
			c Claim
			d Decision
		}{
			{Claim{Now: now, Cost: 3}, rejected}, {Claim{Now: now, Cost: 4}, rejected}, {Claim{Now: now, Cost: -3}, taken}, {Claim{Now: now, Cost: -3}, rejected},
		} {
			if s.d.OK && !l.Traits().EndsAtResponse {
				continue // its claims have no cost when they end
			}
			l.Report(t.Context(), s.c, s.d, Feedback{Now: s.c.Now, State: Unused})
			for _, cost := range []int64{1, 50} {
				l.Report(t.Context(), s.c, s.d, Feedback{Now: now, Cost: cost})
			}
			require.Equal(t, before, state(), "%T: %+v", l, s.c)
		}
	}
}

// TestLimiters_policy checks the name of the limit in decisions.
func TestLimiters_policy(t *testing.T) {
	limit, named := PerHour(4), Limit{Name: "n", Count: 4, Per: time.Hour}
	for _, tt := range []struct {
		l    Limiter
		want string
	}{
		{NewNginx(NginxConfig{Rate: 4, Per: time.Hour}), "rate=4/1h0m0s burst=0"},
		{NewNginx(NginxConfig{Name: "n", Rate: 4, Per: time.Hour}), "n"},
		{NewConcurrency(ConcurrencyConfig{Count: 4}), ConcurrencyConfig{Count: 4}.String()},
		{NewConcurrency(ConcurrencyConfig{Name: "n", Count: 4}), "n"},
		{NewFixedWindow(FixedWindowConfig{Count: 4, Per: time.Hour}), FixedWindowConfig{Count: 4, Per: time.Hour}.String()},
		{NewFixedWindow(FixedWindowConfig{Name: "n", Count: 4, Per: time.Hour}), "n"},
		{NewTokenBucket(limit), limit.String()}, {NewTokenBucket(named), "n"},
		{NewRefillBucket(RefillBucketConfig{Limit: named}), "n"}, {NewLeakyBucket(LeakyBucketConfig{Limit: named}), "n"},
		{NewSlidingLog(SlidingLogConfig{Limit: named}), "n"}, {NewSlidingCounter(SlidingCounterConfig{Limit: named}), "n"},
		{NewTickQueue(TickQueueConfig{Limit: named, Queue: 4}), "n"},
	} {
		d, err := tt.l.Reserve(t.Context(), Claim{})
		require.NoError(t, err)
		require.Equal(t, tt.want, d.Policy, "%T", tt.l)
	}
	for a, want := range map[Alignment]string{
		AtEpoch: "from the epoch", AtFirst: "from the first claim", AtCreation: "from the creation",
		EachMinute: "each minute", EachHour: "each hour", EachDay: "each day", EachMonth: "each month", EachMonth + 1: "alignment 7",
	} {
		require.Equal(t, want, a.String())
	}
}

// TestLimiters_startWithoutAClock checks limiters that read the system clock and have an anchor or
// an initial deficit.
func TestLimiters_startWithoutAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewRefillBucket(RefillBucketConfig{Limit: PerHour(4), InitialDeficit: 4})
		d, err := b.Reserve(t.Context(), Claim{})
		require.NoError(t, err)
		require.False(t, d.OK)
		require.Zero(t, d.Remaining)
		q := NewTickQueue(TickQueueConfig{Limit: PerHour(1), Queue: 2, Anchor: time.Now().Add(-20 * time.Minute)})
		d, err = ReserveAhead(t.Context(), q, Claim{}, Forever)
		require.NoError(t, err)
		require.Equal(t, 40*time.Minute, d.Wait)
	})
}

// TestConcurrency_reusesTheMemoryOfExpiredClaims grants claims that never end.
func TestConcurrency_reusesTheMemoryOfExpiredClaims(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{Count: 2, MaxAge: time.Second})
	now := time.Now()
	for i := range 1000 {
		d, err := l.Reserve(t.Context(), Claim{Now: now.Add(time.Duration(i) * time.Second), Cost: 2})
		require.NoError(t, err)
		require.True(t, d.OK)
	}
	require.Len(t, l.(*concurrency).claims, 2)
	require.EqualValues(t, 2, l.(*concurrency).used)
}

// TestTokenBucket_settlesAfterALongTime takes units for a claim that ends decades later.
func TestTokenBucket_settlesAfterALongTime(t *testing.T) {
	now := time.Now().Round(0)
	for _, years := range []int{0, 1, 40, 120} {
		b := NewTokenBucket(Limit{Count: 4, Per: time.Hour, Burst: 4})
		c := Claim{Now: now, Cost: 4}
		d, err := b.Reserve(t.Context(), c)
		require.NoError(t, err)
		end := now.AddDate(years, 0, 0)
		b.Report(t.Context(), c, d, Feedback{Now: end, Cost: 7})
		d, err = b.Reserve(t.Context(), Claim{Now: end, DryRun: true})
		require.NoError(t, err)
		if years == 0 {
			require.Equal(t, time.Hour, d.Wait, "3 more than the bucket holds")
			continue
		}
		require.EqualValues(t, 1, d.Remaining, years)
	}
}

// The goroutine that waits for a replacement of the state returns when it is complete, and leaves
// the bucket unlocked.
func TestTokenBucket_waitReplaced(t *testing.T) {
	b := newToken(PerSecond(1))
	b.waitReplaced()
	require.True(t, b.mu.TryLock())
	b.mu.Unlock()
	e := b.state.Load()
	require.True(t, b.replace(e, PerSecond(2), 0))
	require.False(t, b.replace(e, PerSecond(3), 0), "it has been replaced")
	require.Equal(t, PerSecond(2), b.Limit())
}
