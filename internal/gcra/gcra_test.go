package gcra

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNew_isExactWhereTicksFit(t *testing.T) {
	p := New(3, time.Second, 2, 5)
	require.Equal(t, Params{Burst: 2, Interval: 1e9, Window: 2e9, RefillTime: 666666667, Scale: 3, Horizon: MaxTicks / 2 / 3, Origin: 5}, p)
	require.EqualValues(t, 30, p.Ticks(15))
	require.EqualValues(t, 2, p.Duration(4))
	require.Zero(t, p.Duration(-1))

	remaining, resetAfter := p.State(1e9 + 1)
	require.EqualValues(t, 0, remaining, "a part of a unit is none")
	require.EqualValues(t, 333333334, resetAfter)
}

// A scale that does not fit makes the rate lower, by less than a millionth.
func TestNew_lowersRatesThatDoNotFit(t *testing.T) {
	p := New(16*999999937, time.Second, 5e11, 0)
	require.LessOrEqual(t, p.Scale, int64(maxScale))
	exact, got := 16*.999999937, float64(p.Scale)/float64(p.Interval)
	require.LessOrEqual(t, got, exact)
	require.InEpsilon(t, exact, got, 1e-6)
	require.LessOrEqual(t, p.Window, int64(MaxWindow))

	p = New(math.MaxInt64, time.Nanosecond, math.MaxInt64, 0)
	require.LessOrEqual(t, p.Window, int64(MaxWindow))
}

// TestNew_keepsTheBurst checks that a window that does not fit lowers the scale and not the
// burst, and the rate by less than a millionth.
func TestNew_keepsTheBurst(t *testing.T) {
	for _, c := range []struct {
		count, burst int64
		per          time.Duration
	}{
		{1000, 1e9, 999_999_937},
		{1 << 20, 1e7, 365 * 24 * time.Hour},
		{999_983, 5e11, 1_000_003},
		{7, 2, 100 * 365 * 24 * time.Hour},
	} {
		p := New(c.count, c.per, c.burst, 0)
		require.Equal(t, c.burst, p.Burst, "%+v", c)
		require.LessOrEqual(t, p.Window, int64(MaxWindow), "%+v", c)
		exact, got := float64(c.count)/float64(c.per), float64(p.Scale)/float64(p.Interval)
		require.LessOrEqual(t, got, exact*(1+1e-15), "%+v", c)
		require.InEpsilon(t, exact, got, 1e-6, "%+v", c)
	}
	p := New(1000, 999_999_937, 1e11, 0) // a window of ticks longer than MaxWindow at any larger scale
	require.EqualValues(t, 5, p.Scale)
	require.EqualValues(t, 5_000_000, p.Interval)
	require.EqualValues(t, 1e11, p.Burst)
}

func TestParams_stateOfAFullAndAnEmptyBucket(t *testing.T) {
	for _, count := range []int64{1, 3} { // scales 1 and 3
		p := New(count, time.Second, 2, 0)
		for _, c := range []struct{ taken, remaining, resetAfter int64 }{
			{-5, 2, 0}, {0, 2, 0}, {1, 1, 1}, {p.Window, 0, int64(p.RefillTime)}, {p.Window + 3, 0, int64(p.RefillTime) + 3/count},
		} {
			remaining, resetAfter := p.State(c.taken)
			require.Equal(t, c.remaining, remaining, "scale %d, taken %d", count, c.taken)
			require.EqualValues(t, c.resetAfter, resetAfter, "scale %d, taken %d", count, c.taken)
		}
	}
}

func TestWithMaxScale_lowersTheRate(t *testing.T) {
	p := New(999999937, time.Second, 3, 0)
	q := p.WithMaxScale(4, 3)
	require.EqualValues(t, 4, q.Scale)
	require.EqualValues(t, 3, q.Burst)
	require.EqualValues(t, 5, q.Interval, "rounded up from 4.00000025")
	require.Equal(t, q.Burst*q.Interval, q.Window)
	require.Equal(t, q, q.WithMaxScale(4, 3))
}

func TestParams_coverTheHorizonAroundTheOrigin(t *testing.T) {
	p := New(1, time.Second, 1, 1000)
	require.True(t, p.Covers(1000-p.Horizon))
	require.True(t, p.Covers(1000+p.Horizon))
	require.False(t, p.Covers(1000+p.Horizon+1))
	require.False(t, p.Covers(math.MinInt64))
}
