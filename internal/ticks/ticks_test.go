package ticks

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestArithmetic_saturates(t *testing.T) {
	const largest, smallest = math.MaxInt64, math.MinInt64
	require.EqualValues(t, 3, Add(1, 2))
	require.EqualValues(t, largest, Add(largest, 1))
	require.EqualValues(t, smallest, Add(smallest, -1))
	require.EqualValues(t, -1, Sub(1, 2))
	require.EqualValues(t, smallest, Sub(smallest, 1))
	require.EqualValues(t, largest, Sub(largest, -1))
	require.EqualValues(t, -6, Mul(-2, 3))
	require.EqualValues(t, 0, Mul(-2, 0))
	require.EqualValues(t, largest, Mul(largest, 2))
	require.EqualValues(t, smallest, Mul(-largest, 2))
	require.EqualValues(t, largest, Int64(1e30))
	require.EqualValues(t, smallest, Int64(-1e30))
	require.EqualValues(t, largest, Int64(math.NaN()))
	require.Equal(t, 2*time.Nanosecond, CeilDuration(1.5))
}

func TestTimeline_atIsTheInverseOfRead(t *testing.T) {
	l := NewTimeline(nil)
	now := l.Start().Add(-time.Hour)
	require.EqualValues(t, -time.Hour, l.Read(now))
	require.True(t, l.At(l.Read(now)).Equal(now))

	w := NewWallTimeline(nil)
	require.Zero(t, w.SinceEpoch())
	require.EqualValues(t, time.Second, w.Read(time.Unix(1, 0)))
}

func TestTimeline_stampKeepsTheCallersValue(t *testing.T) {
	l := NewTimeline(nil)
	callers := l.Start().Add(time.Second).UTC().Round(0)
	require.Equal(t, callers, l.Stamp(5, 5, callers))
	require.Equal(t, l.At(5), l.Stamp(5, 4, callers))
	require.Equal(t, l.At(5), l.Stamp(5, 5, time.Time{}))
}

func TestMulDivUp_roundsUpAndSaturates(t *testing.T) {
	require.EqualValues(t, 4, MulDivUp(7, 1, 2))
	require.EqualValues(t, 1<<62, MulDivUp(1<<62, 1<<20, 1<<20))
	require.EqualValues(t, math.MaxInt64, MulDivUp(math.MaxInt64, 3, 2))
	require.EqualValues(t, math.MaxInt64, MulDivUp(math.MaxInt64, math.MaxInt64, 1))
}

func TestGCD(t *testing.T) {
	require.EqualValues(t, 6, GCD(12, 18))
	require.EqualValues(t, 5, GCD(5, 0))
}
