package keyed

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A key is banned by the rejection that is the last of Refusals within Within. The count
// starts again after a ban and after a reset.
func TestBanState_agreesWithAList(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := BanConfig{Refusals: 1 + r.IntN(5), Within: 20}
		o, now := new(banState), int64(0)
		var list []int64
		for range 300 {
			if now += r.Int64N(12); r.IntN(12) == 0 {
				o.reset()
				list = nil
			}
			list = append(list, now)
			n := len(list)
			want := n >= s.Refusals && now-list[n-s.Refusals] < int64(s.Within)
			require.Equal(t, want, o.count(now, s), "seed %d, at %d", seed, now)
			if want {
				list = nil
			}
		}
	}
}

func TestNewBan_defaults(t *testing.T) {
	p := NewBan(throttle.AllowAll, BanConfig{Refusals: 3, Within: time.Minute, Duration: time.Hour})
	require.Equal(t, 65536, p.config.MaxKeys)
	require.Equal(t, time.Hour, p.config.MaxDuration)
	require.Equal(t, time.Hour, p.config.ForgetAfter)
	require.Equal(t, "ban", p.config.Name)
}

// All claims have readings far before the clock's. A limiter that is idle as of the clock, but
// not as of the claims, is not evicted.
func TestLimiter_pastReadingsEvictNothing(t *testing.T) {
	k := &Limiter{Max: 1, New: func(string) throttle.Limiter { return throttle.NewTokenBucket(throttle.PerHour(1)) }}
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
