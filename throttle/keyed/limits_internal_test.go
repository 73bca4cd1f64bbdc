package keyed

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A key is banned by the rejection that is the last of Rejections within Within. The count
// starts again after a ban and after a reset.
func TestBanState_agreesWithAList(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := BanConfig{Rejections: 1 + r.IntN(5), Within: 20}
		o, now := new(banState), int64(0)
		var list []int64
		for range 300 {
			if now += r.Int64N(12); r.IntN(12) == 0 {
				o.reset()
				list = nil
			}
			list = append(list, now)
			n := len(list)
			want := n >= s.Rejections && now-list[n-s.Rejections] < int64(s.Within)
			require.Equal(t, want, o.count(now, s), "seed %d, at %d", seed, now)
			if want {
				list = nil
			}
		}
	}
}

func TestNewBan_defaults(t *testing.T) {
	p := NewBan(throttle.AllowAll, BanConfig{Rejections: 3, Within: time.Minute, Duration: time.Hour}).(*banLimiter)
	require.Equal(t, 65536, p.config.MaxKeys)
	require.Equal(t, time.Hour, p.config.MaxDuration)
	require.Equal(t, time.Hour, p.config.ForgetAfter)
	require.Equal(t, "ban", p.config.Name)
}

// All claims have readings far before the clock's. A limiter that is idle as of the clock, but
// not as of the claims, is not evicted.
func TestLimiter_pastReadingsEvictNothing(t *testing.T) {
	// With Overflow, because new keys evict limiters in use without it.
	k := &Limiter{Max: 1, Overflow: throttle.AllowAll, New: func(string) throttle.Limiter { return throttle.NewTokenBucket(throttle.PerHour(1)) }}
	then := time.Now().Add(-10 * time.Hour)
	claim := func(key string) bool {
		d, err := k.Reserve(t.Context(), throttle.Claim{Key: key, Now: then})
		require.NoError(t, err)
		return d.OK
	}
	require.True(t, claim("a"))
	require.True(t, claim("b"), "shares the overflow")
	require.False(t, claim("a"))
	require.Equal(t, 1, k.Len())
}

// New claims for another key, which takes the last place. The first key then shares Overflow,
// not the limiter that New has made for it.
func TestLimiter_overflowWhenNewTakesTheLastPlace(t *testing.T) {
	k := &Limiter{Max: 1, Overflow: throttle.DenyAll}
	k.New = func(key string) throttle.Limiter {
		if key == "a" {
			d, err := k.Reserve(t.Context(), throttle.Claim{Key: "b"})
			require.NoError(t, err)
			require.True(t, d.OK)
		}
		return throttle.NewTokenBucket(throttle.PerHour(1))
	}
	d, err := k.Reserve(t.Context(), throttle.Claim{Key: "a"})
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, 1, k.Len())
}

// fresh reports whether a dry run on l at now is Fresh.
func fresh(t *testing.T, l throttle.Limiter, now time.Time) bool {
	t.Helper()
	d, err := l.Reserve(t.Context(), throttle.Claim{Now: now, DryRun: true})
	require.NoError(t, err)
	return d.Fresh
}

// A statedLimiter returns the same decision for every claim.
type statedLimiter struct {
	throttle.Limiter
	d     throttle.Decision
	err   error
	claim throttle.Claim // the latest
}

func (l *statedLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.claim, l.d.At = c, c.Now
	return l.d, l.err
}

func TestFreshAfter_asksByADryRun(t *testing.T) {
	start := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		l    statedLimiter
		want time.Duration
	}{
		"fresh":               {statedLimiter{d: throttle.Decision{OK: true, Fresh: true}}, 0},
		"fresh and rejected":  {statedLimiter{d: throttle.Decision{Fresh: true}}, 0},
		"not stated":          {statedLimiter{d: throttle.Decision{OK: true, Limit: 3, Remaining: 3}}, time.Second},
		"restored later":      {statedLimiter{d: throttle.Decision{OK: true, Limit: 3, Remaining: 2, ResetAfter: time.Minute}}, time.Minute},
		"restored in a while": {statedLimiter{d: throttle.Decision{OK: true, Limit: 3, Remaining: 3, ResetAfter: 1}}, 1},
		"error":               {statedLimiter{d: throttle.Decision{Fresh: true}, err: errors.New("away")}, time.Second},
	} {
		require.Equal(t, tt.want, freshAfter(&tt.l, "k", start), name)
		require.Equal(t, throttle.Claim{Key: "k", Now: start, DryRun: true}, tt.l.claim, name)
	}
}

// A key is forgotten only after ForgetAfter, and the Ban is in use until then.
func TestBan_freshOnceItsOnlyKeyIsForgotten(t *testing.T) {
	start := time.Unix(0, 0)
	p := throttle.WithClock(NewBan(throttle.DenyAll, BanConfig{Rejections: 1, Within: 1, Duration: 1, MaxDuration: 8, ForgetAfter: time.Minute}), fixedClock(start))
	require.True(t, fresh(t, p, start))
	claim := func(at time.Duration) throttle.Decision {
		d, err := p.Reserve(t.Context(), throttle.Claim{Key: "a", Now: start.Add(at)})
		require.NoError(t, err)
		return d
	}
	claim(0)
	require.Equal(t, time.Duration(1), claim(0).ResetAfter)
	require.EqualValues(t, 2, claim(1).ResetAfter, "the second ban is twice as long")
	end := start.Add(3)
	require.False(t, fresh(t, p, end.Add(time.Minute-1)))
	require.EqualValues(t, 1, claim(3+time.Minute).ResetAfter, "the first ban after the key was forgotten")
	require.True(t, fresh(t, p, start.Add(3+time.Minute+1+time.Minute)))
	require.Equal(t, 1, p.(*banLimiter).keys.len(), "a dry run as of a later time forgets nothing")
}

// A rejection because of a ban lasts as long as the ban, whenever a granted claim could begin.
func TestBan_waitOfAClaimThatCouldBeginLater(t *testing.T) {
	for _, tt := range []struct {
		inner throttle.Decision
		want  time.Duration
	}{
		{throttle.Decision{OK: true, Wait: time.Hour}, time.Minute},
		{throttle.Decision{Wait: time.Hour}, time.Hour},
		{throttle.Decision{Wait: time.Second}, time.Minute},
		{throttle.Decision{Wait: time.Minute}, time.Minute},
	} {
		p := NewBan(throttle.DenyAll, BanConfig{Rejections: 1, Within: 1, Duration: time.Minute})
		d := p.(*banLimiter).banned(tt.inner, int64(time.Minute), 0)
		require.False(t, d.OK)
		require.Equal(t, tt.want, d.Wait, "%+v", tt)
		require.Equal(t, tt.want == time.Minute && tt.inner.Wait != time.Minute, d.Policy == "ban", "%+v", tt)
	}
}

// TestKeyTable_ordersByEvictableAt compares a table with a list.
func TestKeyTable_ordersByEvictableAt(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		var table keyTable[*banState]
		all := map[string]*banState{}
		for i := range 40 {
			o := new(banState)
			all[string(rune('A'+i))] = o
			table.add(o, string(rune('A'+i)), r.Int64N(100)-100)
			table.setEvictableAt(o, r.Int64N(100))
		}
		for now := int64(0); now < 120; now += r.Int64N(20) {
			if key := string(rune('A' + r.IntN(40))); all[key] != nil {
				table.remove(all[key])
				require.Negative(t, all[key].index)
				delete(all, key)
			}
			for table.len() > 0 && table.heap.First().evictableAt <= now {
				table.remove(table.heap.First())
			}
			for key, o := range all {
				if o.evictableAt <= now {
					delete(all, key)
				}
			}
			require.Equal(t, all, table.byKey, "seed %d, at %d", seed, now)
			require.Equal(t, len(all), table.len())
		}
	}
}

// TestNonBlocking_asksTheLimiters checks which limiters may block.
func TestNonBlocking_asksTheLimiters(t *testing.T) {
	blocking := remote{throttle.AllowAll}
	require.False(t, blocking.Traits().NonBlocking)
	limit, ban := throttle.PerSecond(1), BanConfig{Rejections: 1, Within: 1, Duration: 1}
	unlimited := func(string) throttle.Limiter { return throttle.AllowAll }
	for _, tt := range []struct {
		l    throttle.Limiter
		want bool
	}{
		{NewBuckets(BucketsConfig{Limit: limit}), true},
		{NewBuckets(BucketsConfig{Limit: limit, Overflow: throttle.DenyAll}), true},
		{NewBuckets(BucketsConfig{Limit: limit, Overflow: blocking}), false},
		{&Limiter{New: unlimited}, true},
		{&Limiter{New: unlimited, Overflow: throttle.DenyAll}, true},
		{&Limiter{New: unlimited, Overflow: blocking}, false},
		{NewBan(throttle.DenyAll, ban), true},
		{NewBan(blocking, ban), false},
	} {
		require.Equal(t, tt.want, tt.l.Traits().NonBlocking, "%T", tt.l)
	}
	require.True(t, (&Limiter{New: unlimited}).Traits().CountsRejected)
	require.True(t, NewBan(throttle.DenyAll, ban).Traits().CountsRejected)
}

func TestLimiter_defaultsAndClock(t *testing.T) {
	for limit, want := range map[int]int64{-1: 65536, 0: 65536, 1: 1, 7: 7} {
		require.Equal(t, want, (&Limiter{Max: limit}).maxLimiters())
	}
	clk := fixedClock(time.Unix(0, 0))
	overflow := new(Limiter)
	k := throttle.WithClock(&Limiter{Overflow: overflow}, clk)
	require.Equal(t, clk, k.Clock)
	require.Equal(t, clk, overflow.Clock)
}

// New claims for the same key, which adds its limiter. Both claims use that one.
func TestLimiter_newAddsTheSameKey(t *testing.T) {
	k := &Limiter{Max: 2}
	first := true
	k.New = func(key string) throttle.Limiter {
		if first {
			first = false
			d, err := k.Reserve(t.Context(), throttle.Claim{Key: key})
			require.NoError(t, err)
			require.True(t, d.OK)
		}
		return throttle.NewTokenBucket(throttle.PerHour(1))
	}
	d, err := k.Reserve(t.Context(), throttle.Claim{Key: "a"})
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, 1, k.Len())
}

// A limiter that is used while it is checked for eviction stays, and one is evicted once.
func TestShard_evictIfIdle(t *testing.T) {
	k := &Limiter{Max: 3, New: func(string) throttle.Limiter { return throttle.AllowAll }}
	claim := throttle.Claim{Key: "a"}
	_, err := k.Reserve(t.Context(), claim)
	require.NoError(t, err)
	s := &k.shards[0]
	candidate, uses := s.candidate(0)
	require.Same(t, s.keys.byKey["a"], candidate)
	k.stateOf(claim).activeCalls.Add(-1)
	require.False(t, s.evictIfIdle(candidate, uses, 0, 0), "it was used")
	none, _ := s.candidate(0)
	require.Nil(t, none, "it is checked again later")
	candidate, uses = s.candidate(1)
	require.NotNil(t, candidate)
	require.False(t, s.evictIfIdle(candidate, uses, 5, 1), "it is in use until 5")
	none, _ = s.candidate(4)
	require.Nil(t, none)
	candidate, uses = s.candidate(5)
	require.True(t, s.evictIfIdle(candidate, uses, 5, 5))
	require.False(t, s.evictIfIdle(candidate, uses, 5, 5))
	require.EqualValues(t, 5, s.lastEvicted)
	none, _ = new(shard).candidate(0)
	require.Nil(t, none)
}

// remote is a limiter that may block.
type remote struct{ throttle.Limiter }

// Traits implements throttle.Limiter.
func (remote) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// Usages are compared by the share, and by the time until it is unused only where shares are equal.
func TestUsage_less(t *testing.T) {
	ascending := []usage{{0, 1}, {0, 9}, {.5, 0}, {.5, 5}, {1, 2}}
	for i, a := range ascending {
		for j, b := range ascending {
			require.Equal(t, i < j, a.less(b), "%v and %v", a, b)
		}
	}
}
