package cenkalti

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	v4 "github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
)

const s = time.Second

// belowOne is the largest float64 below 1.
var belowOne = math.Nextafter(1, 0)

// constant returns a Rand function that always returns u.
func constant(u float64) func() float64 { return func() float64 { return u } }

// delaysOf returns the first n delays of p.
func delaysOf(p backoff.Policy, n int) []time.Duration {
	var all []time.Duration
	prev := time.Duration(0)
	for attempt := 1; attempt <= n; attempt++ {
		prev = p.Delay(attempt, prev)
		all = append(all, prev)
	}
	return all
}

type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time { return c.now }

func delays(b v4.BackOff, n int) []time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, b.NextBackOff())
	}
	return all
}

// TestBackOff_stopsAfterMaxRetries checks that after MaxRetries delays, NextBackOff
// returns Stop.
func TestBackOff_stopsAfterMaxRetries(t *testing.T) {
	b := &BackOff{Policy: backoff.Exponential{Base: s, Jitter: backoff.None}, MaxRetries: 3}
	want := []time.Duration{s, 2 * s, 4 * s, v4.Stop, v4.Stop}
	require.Equal(t, want, delays(b, 5))
	b.Reset()
	require.Equal(t, want, delays(b, 5))
}

// TestBackOff_limitsOfOne checks the smallest limits.
func TestBackOff_limitsOfOne(t *testing.T) {
	b := &BackOff{Policy: backoff.Constant(s), MaxRetries: 1}
	require.Equal(t, []time.Duration{s, v4.Stop}, delays(b, 2))
	clk := &steppedClock{now: time.Unix(1, 0)}
	b = &BackOff{Policy: backoff.Constant(1), MaxElapsed: 1, Clock: clk}
	require.Equal(t, time.Duration(1), b.NextBackOff())
	clk.now = clk.now.Add(1)
	require.Equal(t, v4.Stop, b.NextBackOff())
}

// TestPolicy_zeroIsADelay checks that only a negative delay means Stop.
func TestPolicy_zeroIsADelay(t *testing.T) {
	p := Policy(func() v4.BackOff { return &v4.ZeroBackOff{} })
	require.Equal(t, []time.Duration{0, 0}, delaysOf(backoff.ForCall(p), 2))
}

func TestBackOff_staysStoppedWhenALaterDrawWouldFit(t *testing.T) {
	us := []float64{0.5, 0.9, 0, 0.5}
	random := func() float64 { u := us[0]; us = us[1:]; return u }
	b := &BackOff{Policy: backoff.Exponential{Base: s, Factor: 1, Rand: random}, MaxElapsed: s * 3 / 4, Clock: &steppedClock{}}
	require.Equal(t, []time.Duration{s / 2, v4.Stop, v4.Stop}, delays(b, 3))
	b.Reset()
	require.Equal(t, time.Duration(0), b.NextBackOff())
}

func TestBackOff_measuresFromResetByItsClock(t *testing.T) {
	clk := &steppedClock{}
	b := &BackOff{Policy: backoff.Constant(s), MaxElapsed: 3 * s, Clock: clk}
	clk.now = clk.now.Add(time.Hour) // before the first use, so it does not count
	require.Equal(t, s, b.NextBackOff())
	clk.now = clk.now.Add(2 * s)
	require.Equal(t, s, b.NextBackOff())
	b.Policy = backoff.Constant(4 * s)
	b.Reset()
	clk.now = clk.now.Add(-time.Hour) // a clock that steps back counts as no elapsed time
	require.Equal(t, v4.Stop, b.NextBackOff())
	b.Policy = backoff.Constant(s)
	b.Reset()
	clk.now = clk.now.Add(2*s + 1)
	require.Equal(t, v4.Stop, b.NextBackOff())
	b.Reset()
	require.Equal(t, s, b.NextBackOff())
}

func TestBackOff_passesThePreviousDelay(t *testing.T) {
	b := &BackOff{Policy: backoff.Exponential{Base: s, Jitter: backoff.Decorrelated, Rand: constant(belowOne)}}
	require.Equal(t, []time.Duration{3 * s, 9 * s, 27 * s, 30 * s}, delays(b, 4))
	b.Reset()
	require.Equal(t, []time.Duration{3 * s}, delays(b, 1))
}

func TestBackOff_zeroValueWaitsAsExponential(t *testing.T) {
	var b BackOff
	for attempt := 1; attempt <= 100; attempt++ {
		d := b.NextBackOff()
		require.True(t, 0 <= d && d < backoff.Exponential{Jitter: backoff.None}.Delay(attempt, 0), "attempt %d: %v", attempt, d)
	}
}

func TestNew_waitsAsThePolicy(t *testing.T) {
	require.Equal(t, []time.Duration{s, s, s}, delays(New(backoff.Constant(s)), 3))
}

func TestBackOff_worksWithRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		start, calls := time.Now(), 0
		err := v4.Retry(func() error { calls++; return broken }, &BackOff{Policy: backoff.Linear{Base: s, Jitter: backoff.None}, MaxElapsed: 11 * s})
		require.ErrorIs(t, err, broken)
		require.Equal(t, 5, calls)
		require.Equal(t, 10*s, time.Since(start))
	})
}

func TestPolicy_oneBackOffPerCall(t *testing.T) {
	made := 0
	p := Policy(func() v4.BackOff {
		made++
		return v4.WithMaxRetries(&v4.ExponentialBackOff{InitialInterval: s, Multiplier: 2, MaxInterval: time.Minute, Clock: v4.SystemClock, Stop: v4.Stop}, 3)
	})
	want := []time.Duration{s, 2 * s, 4 * s, backoff.Stop, backoff.Stop}
	a, b := backoff.ForCall(p), backoff.ForCall(p)
	require.Equal(t, want, delaysOf(a, 5))
	require.Equal(t, want, delaysOf(b, 5))
	require.Equal(t, 2, made)
	require.Equal(t, want, delaysOf(p, 5), "without ForCall")
	require.Equal(t, backoff.Stop, p.Delay(math.MaxInt, 0))
	require.Equal(t, s, p.Delay(math.MinInt, 0))
}

func TestPolicy_delayCallsAtMostAHundredTimes(t *testing.T) {
	asked := 0
	p := Policy(func() v4.BackOff { return counting{&asked} })
	require.Equal(t, s, p.Delay(math.MaxInt, 0))
	require.Equal(t, 100, asked)
}

type counting struct{ n *int }

func (c counting) NextBackOff() time.Duration { *c.n++; return s }
func (c counting) Reset()                     {}

func TestPolicy_negativeDelayIsStop(t *testing.T) {
	p := Policy(func() v4.BackOff { return v4.NewConstantBackOff(-5) })
	require.Equal(t, backoff.Stop, backoff.ForCall(p).Delay(1, 0))
	require.Panics(t, func() { Policy(nil) })
}

func TestPolicy_roundTrip(t *testing.T) {
	theirs := func() v4.BackOff { return v4.WithMaxRetries(v4.NewConstantBackOff(s), 2) }
	b := &BackOff{Policy: Policy(theirs)}
	for range 2 {
		require.Equal(t, []time.Duration{s, s, v4.Stop, v4.Stop}, delays(b, 4))
		b.Reset()
	}
}
