package keyed_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

func newBan(s keyed.BanConfig, inner func(string) throttle.Limiter, clk throttle.Clock) throttle.Limiter {
	return throttle.WithClock(keyed.NewBan(&keyed.Limiter{New: inner, Clock: clk}, s), clk)
}

var banAfterThree = keyed.BanConfig{Rejections: 3, Within: time.Second, Duration: 10 * time.Second, MaxDuration: 35 * time.Second, ForgetAfter: time.Minute}

func TestBan_doublesUpToMaxDuration(t *testing.T) {
	clk := clock.NewMock()
	p := newBan(banAfterThree, bucketsOf(throttle.PerSecond(1), clk), clk)
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 35 * time.Second, 35 * time.Second} {
		require.True(t, ask(t, p, "eve", 1).OK)
		require.Equal(t, time.Second, ask(t, p, "eve", 1).Wait)
		require.Equal(t, time.Second, ask(t, p, "eve", 1).Wait)
		third := ask(t, p, "eve", 1)
		require.Equal(t, want, third.Wait)
		require.Equal(t, "ban", third.Policy)
		clk.Add(want - 1)
		d := ask(t, p, "eve", 1)
		require.False(t, d.OK)
		require.Equal(t, time.Duration(1), d.Wait)
		require.Zero(t, d.Remaining)
		clk.Add(1)
	}
	require.True(t, ask(t, p, "ann", 1).OK, "others are not punished")
}

func TestBan_resetsAfterForgetAfter(t *testing.T) {
	clk := clock.NewMock()
	p := newBan(banAfterThree, bucketsOf(throttle.PerSecond(1), clk), clk)
	exceed := func() time.Duration {
		ask(t, p, "eve", 1)
		ask(t, p, "eve", 1)
		ask(t, p, "eve", 1)
		return ask(t, p, "eve", 1).Wait
	}
	require.Equal(t, 10*time.Second, exceed())
	clk.Add(10*time.Second + time.Minute - 1)
	require.Equal(t, 20*time.Second, exceed(), "a nanosecond too early")
	clk.Add(20*time.Second + time.Minute)
	require.Equal(t, 10*time.Second, exceed())
}

func TestBan_countsRejectionsWithinOnly(t *testing.T) {
	clk := clock.NewMock()
	p := throttle.WithClock(keyed.NewBan(throttle.DenyAll, banAfterThree), clk)
	for range 50 {
		require.Equal(t, "blocked", ask(t, p, "slow", 1).Policy)
		clk.Add(500 * time.Millisecond) // the third comes a second after the first
	}
	for range 3 {
		reserve(t, p, throttle.Claim{Key: "dry", DryRun: true})
	}
	require.Equal(t, "blocked", ask(t, p, "dry", 1).Policy, "dry runs do not count")
	require.False(t, reserve(t, p, throttle.Claim{DryRun: true}).Fresh)
	require.True(t, reserve(t, p, throttle.Claim{DryRun: true, Now: clk.Now().Add(time.Hour)}).Fresh)
}

// A list of rejections is compared with the ring.
func TestBan_agreesWithAList(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		r, clk := rand.New(rand.NewPCG(seed, 9)), &manualClock{now: time.Unix(0, 0)}
		s := keyed.BanConfig{Rejections: 1 + r.IntN(5), Within: 50, Duration: 20, MaxDuration: 150, ForgetAfter: 100}
		p := throttle.WithClock(keyed.NewBan(throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10, Burst: 3}), clk), s), clk)
		model := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10, Burst: 3}), clk)
		var list []int64
		now, until, duration, forgetAt := int64(0), int64(-1), int64(0), int64(1<<60)
		for range 400 {
			step := r.Int64N(12)
			if r.IntN(40) == 0 {
				step = r.Int64N(400)
			}
			now += step
			clk.now = clk.now.Add(time.Duration(step))
			banned := now < until
			want := reserve(t, model, throttle.Claim{DryRun: banned})
			got := reserve(t, p, throttle.Claim{Key: "a"})
			require.Equal(t, want.OK && !banned, got.OK, "seed %d, at %d", seed, now)
			if !want.OK && !banned {
				if now >= forgetAt {
					list, duration = nil, 0
				}
				list, forgetAt = append(list, now), now+100
				if n := len(list) - s.Rejections; n >= 0 && now-list[n] < 50 {
					duration = min(max(2*duration, 20), 150)
					until, list = now+duration, nil
					forgetAt = until + 100
				}
			}
			if now < until {
				wait := want.Wait // only of a rejection: a grant has no wait
				require.Equal(t, max(time.Duration(until-now), wait), got.Wait, "seed %d, at %d", seed, now)
			}
		}
	}
}

func TestBan_newKeysDoNotEvictBannedKeys(t *testing.T) {
	clk := clock.NewMock()
	s := banAfterThree
	s.MaxKeys = 2
	p := throttle.WithClock(keyed.NewBan(throttle.DenyAll, s), clk)
	exceed := func(key string) bool {
		for range 3 {
			reserve(t, p, throttle.Claim{Key: key, Now: clk.Now()})
		}
		return isBanned(p.Reserve(t.Context(), throttle.Claim{Key: key, Now: clk.Now(), DryRun: true}))
	}
	require.False(t, exceed("eve"), "Blocked says Forever, which is longer than any penalty")
	p = throttle.WithClock(keyed.NewBan(rejecting(time.Millisecond), s), clk)
	require.True(t, exceed("eve"))
	require.True(t, exceed("mallory"))
	for i := range 100 {
		require.False(t, exceed(strconv.Itoa(i)), "there is no room to watch more")
	}
	require.True(t, isBanned(p.Reserve(t.Context(), throttle.Claim{Key: "eve", Now: clk.Now()})))
	clk.Add(10*time.Second + time.Minute)
	require.True(t, exceed("zoe"), "eve has kept quiet")
}

func isBanned(d throttle.Decision, err error) bool { return err == nil && d.Policy == "ban" }

func TestNewBan_panicsOnInvalidConfig(t *testing.T) {
	for _, s := range []keyed.BanConfig{
		{}, {Rejections: 1}, {Rejections: 1, Within: 1}, {Rejections: 1, Within: 1, Duration: 2, MaxDuration: 1}, {Rejections: 1, Within: 2, Duration: 2, ForgetAfter: 1}, {Rejections: 1, Within: 2, Duration: 2, MaxKeys: -1},
	} {
		require.Error(t, s.Validate())
		require.Panics(t, func() { keyed.NewBan(throttle.DenyAll, s) })
	}
	require.Panics(t, func() { keyed.NewBan(nil, banAfterThree) })
}
