package backoff

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	cenkalti "github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"
)

func delays(b cenkalti.BackOff, n int) []time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, b.NextBackOff())
	}
	return all
}

// Scenario 67.
func TestCenkalti_stopsAfterMaxRetries(t *testing.T) {
	b := &Cenkalti{Policy: Exponential{Base: s, Jitter: None}, MaxRetries: 3}
	want := []time.Duration{s, 2 * s, 4 * s, cenkalti.Stop, cenkalti.Stop}
	require.Equal(t, want, delays(b, 5))
	b.Reset()
	require.Equal(t, want, delays(b, 5))
}

func TestCenkalti_staysStoppedWhenALaterDrawWouldFit(t *testing.T) {
	us := []float64{0.5, 0.9, 0, 0.5}
	random := func() float64 { u := us[0]; us = us[1:]; return u }
	b := &Cenkalti{Policy: Exponential{Base: s, Factor: 1, Rand: random}, MaxElapsed: s * 3 / 4, Clock: &steppedClock{}}
	require.Equal(t, []time.Duration{s / 2, cenkalti.Stop, cenkalti.Stop}, delays(b, 3))
	b.Reset()
	require.Equal(t, time.Duration(0), b.NextBackOff())
}

func TestCenkalti_measuresFromResetByItsClock(t *testing.T) {
	clk := &steppedClock{}
	b := &Cenkalti{Policy: Constant(s), MaxElapsed: 3 * s, Clock: clk}
	clk.now = clk.now.Add(time.Hour) // before the first use: not counted
	require.Equal(t, s, b.NextBackOff())
	clk.now = clk.now.Add(2 * s)
	require.Equal(t, s, b.NextBackOff())
	b.Policy = Constant(4 * s)
	b.Reset()
	clk.now = clk.now.Add(-time.Hour) // a clock that steps back gives no time
	require.Equal(t, cenkalti.Stop, b.NextBackOff())
	b.Policy = Constant(s)
	b.Reset()
	clk.now = clk.now.Add(2*s + 1)
	require.Equal(t, cenkalti.Stop, b.NextBackOff())
	b.Reset()
	require.Equal(t, s, b.NextBackOff())
}

func TestCenkalti_passesThePreviousDelay(t *testing.T) {
	b := &Cenkalti{Policy: Exponential{Base: s, Jitter: Decorrelated, Rand: constant(belowOne)}}
	require.Equal(t, []time.Duration{3 * s, 9 * s, 27 * s, 30 * s}, delays(b, 4))
	b.Reset()
	require.Equal(t, []time.Duration{3 * s}, delays(b, 1))
}

func TestCenkalti_zeroValueWaitsAsExponential(t *testing.T) {
	var b Cenkalti
	for attempt := 1; attempt <= 100; attempt++ {
		d := b.NextBackOff()
		require.True(t, 0 <= d && d < Exponential{Jitter: None}.Delay(attempt, 0), "attempt %d: %v", attempt, d)
	}
}

func TestCenkalti_worksWithRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		start, calls := time.Now(), 0
		err := cenkalti.Retry(func() error { calls++; return broken }, &Cenkalti{Policy: Linear{Base: s, Jitter: None}, MaxElapsed: 11 * s})
		require.ErrorIs(t, err, broken)
		require.Equal(t, 5, calls)
		require.Equal(t, 10*s, time.Since(start))
	})
}

func TestFromCenkalti_oneBackOffPerCall(t *testing.T) {
	made := 0
	p := FromCenkalti(func() cenkalti.BackOff {
		made++
		return cenkalti.WithMaxRetries(&cenkalti.ExponentialBackOff{InitialInterval: s, Multiplier: 2, MaxInterval: time.Minute, Clock: cenkalti.SystemClock, Stop: cenkalti.Stop}, 3)
	})
	want := []time.Duration{s, 2 * s, 4 * s, Stop, Stop}
	a, b := ForCall(p), ForCall(p)
	require.Equal(t, want, delaysOf(a, 5))
	require.Equal(t, want, delaysOf(b, 5))
	require.Equal(t, 2, made)
	require.Equal(t, want, delaysOf(p, 5), "without ForCall")
	require.Equal(t, Stop, p.Delay(math.MaxInt, 0))
	require.Equal(t, s, p.Delay(math.MinInt, 0))
}

func TestFromCenkalti_delayCallsAtMostAHundredTimes(t *testing.T) {
	asked := 0
	p := FromCenkalti(func() cenkalti.BackOff { return counting{&asked} })
	require.Equal(t, s, p.Delay(math.MaxInt, 0))
	require.Equal(t, 100, asked)
}

type counting struct{ n *int }

func (c counting) NextBackOff() time.Duration { *c.n++; return s }
func (c counting) Reset()                     {}

func TestFromCenkalti_negativeDelayIsStop(t *testing.T) {
	p := FromCenkalti(func() cenkalti.BackOff { return cenkalti.NewConstantBackOff(-5) })
	require.Equal(t, Stop, ForCall(p).Delay(1, 0))
	require.Panics(t, func() { FromCenkalti(nil) })
}

func TestFromCenkalti_roundTrip(t *testing.T) {
	theirs := func() cenkalti.BackOff { return cenkalti.WithMaxRetries(cenkalti.NewConstantBackOff(s), 2) }
	b := &Cenkalti{Policy: FromCenkalti(theirs)}
	for range 2 {
		require.Equal(t, []time.Duration{s, s, cenkalti.Stop, cenkalti.Stop}, delays(b, 4))
		b.Reset()
	}
}

func TestForCall_returnsStatelessPoliciesUnchanged(t *testing.T) {
	require.Equal(t, Policy(Constant(s)), ForCall(Constant(s)))
	require.Nil(t, ForCall(nil))
}
