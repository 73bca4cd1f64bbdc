package throttle_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func newPenalty(s throttle.Sentence, inner func(string) throttle.Limiter, clk throttle.Clock) *throttle.Penalty {
	return throttle.NewPenalty(&throttle.Keyed{New: inner, Clock: clk}, s, clk)
}

var threeStrikes = throttle.Sentence{After: 3, Within: time.Second, For: 10 * time.Second, Max: 35 * time.Second, Quiet: time.Minute}

func TestPenalty_growsOnRepeatsUpToTheMaximum(t *testing.T) {
	clk := clock.NewMock()
	p := newPenalty(threeStrikes, bucketsOf(throttle.PerSecond(1), clk), clk)
	for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 35 * time.Second, 35 * time.Second} {
		require.True(t, ask(t, p, "eve", 1).OK)
		require.Equal(t, time.Second, ask(t, p, "eve", 1).Wait)
		require.Equal(t, time.Second, ask(t, p, "eve", 1).Wait)
		third := ask(t, p, "eve", 1)
		require.Equal(t, want, third.Wait)
		require.Equal(t, "penalty", third.Policy)
		clk.Add(want - 1)
		d := ask(t, p, "eve", 1)
		require.False(t, d.OK)
		require.Equal(t, time.Duration(1), d.Wait)
		require.Zero(t, d.Remaining)
		clk.Add(1)
	}
	require.True(t, ask(t, p, "ann", 1).OK, "others are not punished")
}

func TestPenalty_forgivesWhoKeepsQuiet(t *testing.T) {
	clk := clock.NewMock()
	p := newPenalty(threeStrikes, bucketsOf(throttle.PerSecond(1), clk), clk)
	offend := func() time.Duration {
		ask(t, p, "eve", 1)
		ask(t, p, "eve", 1)
		ask(t, p, "eve", 1)
		return ask(t, p, "eve", 1).Wait
	}
	require.Equal(t, 10*time.Second, offend())
	clk.Add(10*time.Second + time.Minute - 1)
	require.Equal(t, 20*time.Second, offend(), "a nanosecond too early")
	clk.Add(20*time.Second + time.Minute)
	require.Equal(t, 10*time.Second, offend())
}

func TestPenalty_countsRefusalsWithinTheTimeOnly(t *testing.T) {
	clk := clock.NewMock()
	p := throttle.NewPenalty(throttle.Blocked, threeStrikes, clk)
	for range 50 {
		require.Equal(t, "blocked", ask(t, p, "slow", 1).Policy)
		clk.Add(500 * time.Millisecond) // the third comes a second after the first
	}
	for range 3 {
		reserve(t, p, throttle.Claim{Key: "dry", DryRun: true})
	}
	require.Equal(t, "blocked", ask(t, p, "dry", 1).Policy, "dry runs do not count")
	require.False(t, p.Idle(clk.Now()))
	require.True(t, p.Idle(clk.Now().Add(time.Hour)))
}

// A list of refusals against the ring.
func TestPenalty_agreesWithAList(t *testing.T) {
	for seed := range uint64(300) {
		r, clk := rand.New(rand.NewPCG(seed, 9)), &handClock{now: time.Unix(0, 0)}
		s := throttle.Sentence{After: 1 + r.IntN(5), Within: 50, For: 20, Max: 150, Quiet: 100}
		p := throttle.NewPenalty(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10, Burst: 3}, clk), s, clk)
		model := throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10, Burst: 3}, clk)
		var list []int64
		now, until, lasts, forgiven := int64(0), int64(-1), int64(0), int64(1<<60)
		for range 400 {
			step := r.Int64N(12)
			if r.IntN(40) == 0 {
				step = r.Int64N(400)
			}
			now += step
			clk.now = clk.now.Add(time.Duration(step))
			punished := now < until
			want := reserve(t, model, throttle.Claim{DryRun: punished})
			got := reserve(t, p, throttle.Claim{Key: "a"})
			require.Equal(t, want.OK && !punished, got.OK, "seed %d, at %d", seed, now)
			if !want.OK && !punished {
				if now >= forgiven {
					list, lasts = nil, 0
				}
				list, forgiven = append(list, now), now+100
				if n := len(list) - s.After; n >= 0 && now-list[n] < 50 {
					lasts = min(max(2*lasts, 20), 150)
					until, list = now+lasts, nil
					forgiven = until + 100
				}
			}
			if now < until {
				wait := want.Wait // of a refusal only: a grant would have come at once
				require.Equal(t, max(time.Duration(until-now), wait), got.Wait, "seed %d, at %d", seed, now)
			}
		}
	}
}

func TestPenalty_boundsItsMemoryAndForgetsNobodyForMadeUpNames(t *testing.T) {
	clk := clock.NewMock()
	s := threeStrikes
	s.MaxKeys = 2
	p := throttle.NewPenalty(throttle.Blocked, s, clk)
	strike := func(key string) bool {
		for range 3 {
			reserve(t, p, throttle.Claim{Key: key, Now: clk.Now()})
		}
		return punished(p.Reserve(t.Context(), throttle.Claim{Key: key, Now: clk.Now(), DryRun: true}))
	}
	require.False(t, strike("eve"), "Blocked says Forever, which is longer than any penalty")
	p = throttle.NewPenalty(refusing(time.Millisecond), s, clk)
	require.True(t, strike("eve"))
	require.True(t, strike("mallory"))
	for i := range 100 {
		require.False(t, strike(strconv.Itoa(i)), "there is no room to watch more")
	}
	require.True(t, punished(p.Reserve(t.Context(), throttle.Claim{Key: "eve", Now: clk.Now()})))
	clk.Add(10*time.Second + time.Minute)
	require.True(t, strike("zoe"), "eve has kept quiet")
}

func punished(d throttle.Decision, err error) bool { return err == nil && d.Policy == "penalty" }

func TestNewPenalty_panicsOnWhatCannotWork(t *testing.T) {
	for _, s := range []throttle.Sentence{
		{}, {After: 1}, {After: 1, Within: 1}, {After: 1, Within: 1, For: 2, Max: 1}, {After: 1, Within: 2, For: 2, Quiet: 1}, {After: 1, Within: 2, For: 2, MaxKeys: -1},
	} {
		require.Error(t, s.Validate())
		require.Panics(t, func() { throttle.NewPenalty(throttle.Blocked, s, nil) })
	}
	require.Panics(t, func() { throttle.NewPenalty(nil, threeStrikes, nil) })
}
