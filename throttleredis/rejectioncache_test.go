package throttleredis

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// An askedLimiter counts the claims that it decides on.
type askedLimiter struct {
	throttle.Limiter
	claims atomic.Int64
}

func (l *askedLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.claims.Add(1)
	return l.Limiter.Reserve(ctx, c)
}

// TestCacheRejections_decidesAsTheLimiter makes the same random claims through a cache and without
// one, for each kind of limit: both grant the same ones, also those that follow what rejections
// that count have changed.
func TestCacheRejections_decidesAsTheLimiter(t *testing.T) {
	seeds, steps := 6, 500
	if testing.Short() {
		seeds, steps = 1, 400
	}
	for i, p := range pairs() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			repeated := 0
			for seed := range seeds {
				repeated += compareCached(t, p, uint64(seed*100+i), steps)
			}
			switch kind, _, _ := strings.Cut(p.name, ","); {
			case p.name == "SlidingLog, rejections" || p.name == "SlidingLog, large" || p.name == "SlidingLog, blocks, rejections" || kind == "Concurrency" || kind == "InFlight":
				require.Zero(t, repeated)
			case p.unitTime >= 10*time.Millisecond && !p.paysLater && p.name != "SlidingLog, blocks":
				require.Positive(t, repeated)
			}
		})
	}
}

// compareCached returns the number of rejections that the limiter was not asked for.
func compareCached(t *testing.T, p limiterPair, seed uint64, steps int) (repeated int) {
	clk := &manualClock{now: began}
	// Forward: while the clock is set back, claims that are asked for and rejected can advance the time of a limit.
	g := &comparison{T: t, forward: true, limiterPair: p, r: rand.New(rand.NewPCG(seed, 5)), clk: clk}
	stores := []*Store{newTestStore(t), newTestStore(t)}
	for _, s := range stores {
		s.useLocalClock, s.Clock = true, clk
	}
	asked := &askedLimiter{Limiter: p.remote(stores[0])}
	cached := &rejectionCache{Limiter: asked, maxAge: time.Hour, ban: banName(asked.Limiter), seed: maphash.MakeSeed()}
	plain := p.remote(stores[1])
	type held struct {
		c             throttle.Claim
		cached, plain throttle.Decision
	}
	var all []held
	for step := range steps {
		if g.r.IntN(3) == 0 {
			g.advanceClock()
		}
		if len(all) > 0 && g.r.IntN(6) == 0 {
			h, f := all[len(all)-1], throttle.Feedback{Now: clk.now}
			all = all[:len(all)-1]
			if g.r.IntN(2) == 0 {
				f.State = throttle.Unused
			} else {
				f.Cost = 1 + g.r.Int64N(h.c.Cost+2)
			}
			cached.Report(t.Context(), h.c, h.cached, f)
			plain.Report(t.Context(), h.c, h.plain, f)
			continue
		}
		c := throttle.Claim{Key: g.key(), Cost: 1 + g.r.Int64N(min(p.maxCost, 3)), Now: clk.now, DryRun: g.r.IntN(12) == 0, Waits: g.r.IntN(12) == 0}
		before := asked.claims.Load()
		got, err := cached.Reserve(t.Context(), c)
		require.NoError(t, err)
		want, err := plain.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, want.OK, got.OK, "seed %d, step %d: %+v\nwith a cache %+v\nwithout %+v", seed, step, c, got, want)
		if asked.claims.Load() == before {
			repeated++
			require.LessOrEqual(t, got.Wait-time.Microsecond, want.Wait, "seed %d, step %d", seed, step)
			if got.Policy != "ban" { // a cost that is reported meanwhile can make the wait for the limit the longer one
				require.Equal(t, want.Policy, got.Policy)
			}
			require.True(t, want.At.Equal(got.At))
		}
		if got.OK && !c.DryRun {
			all = append(all, held{c, got, want})
		}
	}
	return repeated
}

// A slowLimiter is a limit of one unit in memory that is called as one in a store is. meanwhile is
// called before a decision is returned.
type slowLimiter struct {
	throttle.Limiter
	traits    throttle.Traits
	change    func(*throttle.Decision)
	meanwhile func()
	claims    int
}

func newSlowLimiter() *slowLimiter {
	return &slowLimiter{Limiter: throttle.NewTokenBucket(throttle.PerHour(1)), traits: throttle.Traits{EndsAtResponse: true}}
}

func (l *slowLimiter) Traits() throttle.Traits { return l.traits }

func (l *slowLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.claims++
	d, err := l.Limiter.Reserve(ctx, c)
	if l.change != nil && !d.OK {
		l.change(&d)
	}
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return d, err
}

func TestCacheRejections_asksOnceInMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newSlowLimiter()
		l := CacheRejections(inner, time.Second)
		require.True(t, take(t, l, "a").OK)
		start := time.Now()
		for range 10_000 {
			d := take(t, l, "a")
			require.False(t, d.OK)
			require.Equal(t, time.Hour-time.Since(start), d.Wait)
			require.Equal(t, d.Wait, d.ResetAfter)
			require.True(t, d.At.Equal(time.Now()))
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 1+10, inner.claims)
		time.Sleep(time.Hour - time.Since(start) - time.Millisecond)
		for { // in the last millisecond of the wait a rejection is not certain
			inner.claims = 0
			require.Equal(t, time.Since(start) >= time.Hour, take(t, l, "a").OK)
			require.Equal(t, 1, inner.claims)
			if time.Since(start) >= time.Hour {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
}

// TestCacheRejections_noticesReturns checks when units that are returned are granted again: those
// of this process immediately, also while a rejection is on its way, and those of others within
// maxAge.
func TestCacheRejections_noticesReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newSlowLimiter()
		l := CacheRejections(inner, time.Minute)
		c, unused := throttle.Claim{Key: "a"}, throttle.Feedback{State: throttle.Unused}
		granted := take(t, l, "a")
		require.False(t, take(t, l, "a").OK)
		l.Report(t.Context(), c, granted, unused)
		granted = take(t, l, "a")
		require.True(t, granted.OK, "returned through the limiter")

		inner.meanwhile = func() { l.Report(t.Context(), c, granted, unused) }
		require.False(t, take(t, l, "a").OK)
		inner.meanwhile = nil
		granted = take(t, l, "a")
		require.True(t, granted.OK, "returned while the rejection was on its way")

		require.False(t, take(t, l, "a").OK)
		inner.Report(t.Context(), c, granted, unused)
		require.False(t, take(t, l, "a").OK)
		time.Sleep(time.Minute)
		require.True(t, take(t, l, "a").OK, "returned elsewhere")
	})
}

// TestCacheRejections_asks lists the claims and the rejections for which the limiter is always asked.
func TestCacheRejections_asks(t *testing.T) {
	for name, tt := range map[string]struct {
		c      throttle.Claim
		traits throttle.Traits
		change func(*throttle.Decision)
		want   int // of two claims
	}{
		"repeated":          {want: 1, traits: throttle.Traits{EndsAtResponse: true, BooksAhead: true}},
		"longest key":       {want: 1, c: throttle.Claim{Key: strings.Repeat("k", 512)}, traits: throttle.Traits{EndsAtResponse: true}},
		"never":             {want: 1, c: throttle.Claim{Cost: 2}, traits: throttle.Traits{EndsAtResponse: true}},
		"long key":          {want: 2, c: throttle.Claim{Key: strings.Repeat("k", 513)}, traits: throttle.Traits{EndsAtResponse: true}},
		"dry run":           {want: 2, c: throttle.Claim{DryRun: true}, traits: throttle.Traits{EndsAtResponse: true}},
		"waits":             {want: 2, c: throttle.Claim{Waits: true}, traits: throttle.Traits{EndsAtResponse: true}},
		"ahead":             {want: 2, c: throttle.Claim{Ahead: 1}, traits: throttle.Traits{EndsAtResponse: true}},
		"in memory":         {want: 2, traits: throttle.Traits{EndsAtResponse: true, NonBlocking: true}},
		"held":              {want: 2},
		"counts rejections": {want: 2, traits: throttle.Traits{EndsAtResponse: true, CountsRejected: true}},
		"degraded":          {want: 2, traits: throttle.Traits{EndsAtResponse: true}, change: func(d *throttle.Decision) { d.Degraded = true }},
		"unknown wait":      {want: 2, traits: throttle.Traits{EndsAtResponse: true}, change: func(d *throttle.Decision) { d.Wait = 0 }},
		"short wait":        {want: 2, traits: throttle.Traits{EndsAtResponse: true}, change: func(d *throttle.Decision) { d.Wait = time.Millisecond }},
	} {
		inner := newSlowLimiter()
		inner.traits, inner.change = tt.traits, tt.change
		l := CacheRejections(inner, time.Minute)
		_, err := inner.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		for inner.claims = 0; ; {
			n := inner.claims
			d, err := l.Reserve(t.Context(), tt.c)
			require.NoError(t, err)
			require.False(t, d.OK, name)
			require.Equal(t, tt.traits, l.Traits(), name)
			if n > 0 {
				break
			}
		}
		require.Equal(t, tt.want, inner.claims, name)
	}
	other := newSlowLimiter()
	l := CacheRejections(other, time.Minute)
	require.True(t, take(t, l, "").OK)
	for cost := range int64(3) { // 0 is 1
		_, err := l.Reserve(t.Context(), throttle.Claim{Cost: cost})
		require.NoError(t, err)
	}
	require.Equal(t, 1+2, other.claims, "another cost is another claim")
	_, err := l.Reserve(t.Context(), throttle.Claim{Cost: -1})
	require.ErrorIs(t, err, throttle.ErrCost)
}

// TestCacheRejections_repeatsBans checks that rejections are asked for until they cause a ban, and
// repeated while it lasts, also through a Fallback; and always asked for if a limit has the
// name of the ban.
func TestCacheRejections_repeatsBans(t *testing.T) {
	for name, tt := range map[string]struct {
		wrap   func(throttle.Limiter) throttle.Limiter
		policy string
		want   int64 // of 10 claims
	}{
		"ban":      {func(l throttle.Limiter) throttle.Limiter { return l }, "inner", 4},
		"fallback": {func(l throttle.Limiter) throttle.Limiter { return &Fallback{Limiter: l, Timeout: 10 * time.Second} }, "inner", 4},
		"no name":  {func(l throttle.Limiter) throttle.Limiter { return l }, "ban", 10},
	} {
		var asked atomic.Int64
		s := newTestStore(t)
		s.OnOperation = func(string, time.Duration, error) { asked.Add(1) }
		ban := s.Ban(keyed.BanConfig{Rejections: 3, Within: time.Hour, Duration: 2 * time.Hour}, s.TokenBucket(throttle.Limit{Name: tt.policy, Count: 1, Per: time.Hour}))
		l := CacheRejections(tt.wrap(ban), time.Hour)
		for i := range 10 {
			d := take(t, l, "a")
			require.Equal(t, i == 0, d.OK, name)
			require.Equal(t, i >= 3, d.Wait > time.Hour, "%s: claim %d", name, i)
		}
		require.Equal(t, tt.want, asked.Load(), name)
	}
}

func TestCacheRejections_needsALimiterAndATime(t *testing.T) {
	require.PanicsWithValue(t, "throttleredis: CacheRejections: the limiter is nil", func() { CacheRejections(nil, 1) })
	require.PanicsWithValue(t, "throttleredis: CacheRejections: maxAge is 0s: it must be positive", func() { CacheRejections(throttle.AllowAll, 0) })
}

func BenchmarkCacheRejections(b *testing.B) {
	for name, wrap := range map[string]func(throttle.Limiter) throttle.Limiter{
		"cached": func(l throttle.Limiter) throttle.Limiter { return CacheRejections(l, time.Second) },
		"asked":  func(l throttle.Limiter) throttle.Limiter { return l },
	} {
		b.Run(name, func(b *testing.B) {
			l := wrap(newTestStore(b).TokenBucket(throttle.PerHour(1)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Reserve(b.Context(), throttle.Claim{Key: "a"})
			}
		})
	}
}
