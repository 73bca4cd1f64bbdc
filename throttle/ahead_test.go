package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// bookers returns limiters of 10 claims per second, one at a time.
func bookers() map[string]throttle.Limiter {
	one := throttle.Limit{Count: 10, Per: time.Second, Burst: 1}
	leaky := throttle.LeakyBucketConfig{Limit: one, Queue: 9}
	return map[string]throttle.Limiter{
		"TokenBucket": throttle.NewTokenBucket(one),
		"LeakyBucket": throttle.NewLeakyBucket(leaky),
		"Nginx":       throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 9}),
		"warmup":      warmup.New(warmup.Config{Limit: throttle.PerSecond(10)}),
		"Fallback, primary": throttle.NewFallback(throttle.FallbackConfig{
			Primary: throttle.NewLeakyBucket(leaky), Secondary: throttle.DenyAll}),
		"Fallback, secondary": throttle.NewFallback(throttle.FallbackConfig{
			Primary: failing{}, Secondary: throttle.NewLeakyBucket(leaky)}),
		"keyed": &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.NewLeakyBucket(leaky) }},
		"Ban": keyed.NewBan(throttle.NewLeakyBucket(leaky),
			keyed.BanConfig{Rejections: 99, Within: time.Second, Duration: time.Second}),
	}
}

type failing struct{ throttle.Limiter }

// Traits implements throttle.Limiter.
func (failing) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func (failing) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, context.DeadlineExceeded
}

// A limiter that books ahead grants a claim for later only to ReserveAhead, only up to the accepted wait, and
// in order.
func TestReserveAhead_grantsForLater(t *testing.T) {
	now := time.Unix(1, 0)
	for name, l := range bookers() {
		for i, tt := range []struct {
			maxWait time.Duration
			ok      bool
			wait    time.Duration
		}{
			{0, true, 0},
			{-1, false, 100 * time.Millisecond},
			{60 * time.Millisecond, false, 40 * time.Millisecond},
			{100 * time.Millisecond, true, 100 * time.Millisecond},
			{throttle.Forever, true, 200 * time.Millisecond},
		} {
			d := reserveAhead(t, l, throttle.Claim{Now: now}, tt.maxWait)
			require.Equal(t, tt.ok, d.OK, "%s, claim %d: %+v", name, i, d)
			require.Equal(t, tt.wait, d.Wait, "%s, claim %d", name, i)
		}
		d := reserve(t, l, throttle.Claim{Now: now})
		require.False(t, d.OK, name)
		require.Equal(t, 300*time.Millisecond, d.Wait, name)
	}
}

// A limiter that does not book ahead grants only what may start now.
func TestReserveAhead_ofALimiterThatDoesNotBookAhead(t *testing.T) {
	l := throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 1, Per: time.Minute})
	now := time.Unix(0, 0)
	require.True(t, reserveAhead(t, l, throttle.Claim{Now: now}, throttle.Forever).OK)
	d := reserveAhead(t, l, throttle.Claim{Now: now}, throttle.Forever)
	require.False(t, d.OK)
	require.Equal(t, time.Minute, d.Wait)
}

// WithClock returns the same limiter, and panics if its clock cannot be replaced.
func TestWithClock(t *testing.T) {
	clk := new(atomicClock)
	b := throttle.NewTokenBucket(throttle.PerSecond(1))
	require.Same(t, b, throttle.WithClock(b, clk))
	require.Equal(t, time.Unix(0, 0).UTC(), reserve(t, b, throttle.Claim{}).At.UTC())
	throttle.WithClock(b, nil)
	require.WithinRange(t, reserve(t, b, throttle.Claim{}).At, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.PanicsWithValue(t, "throttle: WithClock: a throttle_test.failing has no method SetClock(throttle.Clock)",
		func() { throttle.WithClock(failing{}, clk) })

	inner := throttle.NewTokenBucket(throttle.PerSecond(1))
	for name, l := range map[string]throttle.Limiter{
		"AllOf":     throttle.AllOf(failing{}, inner),
		"Fallback":  throttle.NewFallback(throttle.FallbackConfig{Primary: failing{}, Secondary: inner}),
		"SoftLimit": throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: inner, Hard: throttle.AllowAll}),
		"Ban":       keyed.NewBan(inner, keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Second}),
		"overflow":  &keyed.Limiter{Overflow: inner},
	} {
		throttle.WithClock(inner, nil)
		throttle.WithClock(l, clk)
		require.Equal(t, time.Unix(0, 0).UTC(), reserve(t, inner, throttle.Claim{DryRun: true}).At.UTC(), name)
	}
}

// A claim that is older than a RefillBucket does not stop its refills.
func TestRefillBucket_claimsOlderThanTheBucket(t *testing.T) {
	b := throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.PerSecond(1)})
	at := time.Now().Add(-24 * time.Hour)
	for range 3 {
		require.True(t, reserve(t, b, throttle.Claim{Now: at}).OK)
		at = at.Add(time.Second)
	}
}

// A limiter that embeds another one and does not forward SetClock would silently keep the system clock.
func TestWithClock_panicsIfAPartHidesItsClock(t *testing.T) {
	type embeds struct{ throttle.Limiter }
	type embedsTwice struct{ *embeds }
	bucket := func() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(1)) }
	for name, compose := range map[string]func(throttle.Limiter) throttle.Limiter{
		"AllOf": func(l throttle.Limiter) throttle.Limiter { return throttle.AllOf(bucket(), l) },
		"Fallback": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: l, Secondary: throttle.AllowAll})
		},
		"soft": func(l throttle.Limiter) throttle.Limiter { return throttle.Shadow(l, nil) },
		"hard": func(l throttle.Limiter) throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.AllowAll, Hard: l})
		},
		"keyed": func(l throttle.Limiter) throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.AllowAll }, Overflow: l}
		},
		"Buckets": func(l throttle.Limiter) throttle.Limiter {
			return keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(1), Overflow: l})
		},
		"Ban": func(l throttle.Limiter) throttle.Limiter {
			return keyed.NewBan(l, keyed.BanConfig{Rejections: 1, Within: 1, Duration: 1})
		},
	} {
		clk := new(atomicClock)
		for _, l := range []throttle.Limiter{embeds{bucket()}, &embeds{throttle.AllOf(bucket())}, embedsTwice{&embeds{bucket()}}} {
			message := fmt.Sprintf("throttle: WithClock: a %T has no method SetClock(throttle.Clock)", l)
			require.PanicsWithValue(t, message, func() { throttle.WithClock(compose(l), clk) }, name)
		}
		for _, l := range []throttle.Limiter{bucket(), throttle.AllowAll, failing{}, embeds{throttle.AllowAll}} { // the last three read no clock
			require.NotPanics(t, func() { throttle.WithClock(compose(l), clk) }, name)
		}
	}
}
