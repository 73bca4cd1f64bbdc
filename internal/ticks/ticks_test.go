package ticks

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// edges are the operands with which all functions are compared with math/big: the ends of
// the range, values around zero, powers of two, and factors whose products just fit.
var edges = []int64{
	math.MinInt64, math.MinInt64 + 1, math.MinInt64 / 2, -1 << 53, -1e9, -1000, -3, -2, -1,
	0, 1, 2, 3, 7, 1000, 999_999_999, 1e9, 1 << 31, 3_037_000_499, 3_037_000_500, 1 << 32, 1 << 53,
	math.MaxInt64 / 3, math.MaxInt64 / 2, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64,
}

// operands returns the edges and as many random values of all magnitudes.
func operands() []int64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := slices.Clone(edges)
	for range edges {
		all = append(all, int64(rnd.Uint64())>>rnd.UintN(63))
	}
	return all
}

// saturate returns x, or the nearest number between smallest and math.MaxInt64.
func saturate(x *big.Int, smallest int64) int64 {
	switch {
	case x.IsInt64():
		return max(x.Int64(), smallest)
	case x.Sign() < 0:
		return smallest
	}
	return math.MaxInt64
}

// divide returns a/b, rounded down or up.
func divide(a *big.Int, b int64, up bool) *big.Int {
	q, m := new(big.Int).DivMod(a, big.NewInt(b), new(big.Int)) // rounds down, as b is positive
	if up && m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func TestArithmetic_agreesWithBig(t *testing.T) {
	all := operands()
	for _, a := range all {
		for _, b := range all {
			x, y := big.NewInt(a), big.NewInt(b)
			compare(t, saturate(new(big.Int).Add(x, y), math.MinInt64), Add(a, b), "Add", a, b)
			compare(t, saturate(new(big.Int).Sub(x, y), math.MinInt64), Sub(a, b), "Sub", a, b)
			if b >= 0 {
				compare(t, saturate(product(a, b), math.MinInt64), Mul(a, b), "Mul", a, b)
			}
			if b > 0 {
				compare(t, saturate(divide(x, b, false), math.MinInt64), FloorDiv(a, b), "FloorDiv", a, b)
			}
			if a >= 0 && b >= 0 {
				compare(t, new(big.Int).GCD(nil, nil, x, y).Int64(), GCD(a, b), "GCD", a, b)
			}
		}
	}
}

func TestMulDiv_agreesWithBig(t *testing.T) {
	all := operands()
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				if b < 0 || c <= 0 {
					continue
				}
				p := product(max(a, -math.MaxInt64), b)
				up, down := divide(p, c, true), divide(p, c, false)
				compare(t, saturate(down, -math.MaxInt64), MulDivDown(a, b, c), "MulDivDown", a, b, c)
				compare(t, saturate(up, -math.MaxInt64), MulDivCeil(a, b, c), "MulDivCeil", a, b, c)
				if a >= 0 {
					compare(t, saturate(up, 0), MulDivUp(a, b, c), "MulDivUp", a, b, c)
				}
			}
		}
	}
}

// compare is require.Equal without its cost, for hundreds of thousands of cases.
func compare(t *testing.T, want, got int64, name string, operands ...int64) {
	if want != got {
		t.Helper()
		require.Equal(t, want, got, "%s%v", name, operands)
	}
}

func TestInt64_truncatesAndSaturates(t *testing.T) {
	const largest, smallest = math.MaxInt64, math.MinInt64
	for f, want := range map[float64]int64{
		0: 0, 1.9: 1, -1.9: -1, 1 << 53: 1 << 53,
		1 << 63:                  largest,
		math.Nextafter(1<<63, 0): largest - 1023,
		-1 << 63:                 smallest,
		-1<<63 - 1<<11:           smallest,
		1e30:                     largest,
		-1e30:                    smallest,
		math.Inf(1):              largest,
		math.Inf(-1):             smallest,
	} {
		require.Equal(t, want, Int64(f), "%g", f)
	}
	require.Equal(t, int64(largest), Int64(math.NaN()))
}

func TestCeilDuration_roundsUp(t *testing.T) {
	require.Equal(t, 2*time.Nanosecond, CeilDuration(1.5))
	require.Equal(t, -time.Nanosecond, CeilDuration(-1.5))
	require.Equal(t, 3*time.Nanosecond, CeilDuration(3))
	require.Equal(t, time.Duration(math.MaxInt64), CeilDuration(math.Inf(1)))
}

func TestTimeline_atIsTheInverseOfRead(t *testing.T) {
	l := NewTimeline()
	now := l.At(0).Add(-time.Hour)
	require.EqualValues(t, -time.Hour, l.Read(now))
	require.True(t, l.At(l.Read(now)).Equal(now))

	w := NewWallTimeline()
	require.Zero(t, w.SinceEpoch())
	require.EqualValues(t, time.Second, w.Read(time.Unix(1, 0)))
}

type fixedClock struct{ now time.Time }

func (c fixedClock) Now() time.Time { return c.now }

func TestTimeline_readsItsClockWithoutAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewTimeline()
		time.Sleep(time.Second)
		require.EqualValues(t, time.Second, l.Read(time.Time{}))
		w := NewWallTimeline()
		w.SetClock(fixedClock{time.Unix(7, 0)})
		require.EqualValues(t, 7*time.Second, w.Read(time.Time{}))
	})
}

func TestNewEpochTimeline_countsFromTheEpochByTheMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		l := NewEpochTimeline()
		require.EqualValues(t, now.UnixNano(), l.Read(now))
		require.EqualValues(t, now.UnixNano(), l.Read(now.Round(0)))
		require.Equal(t, now, l.At(now.UnixNano()), "with the monotonic reading")
		time.Sleep(time.Second)
		require.EqualValues(t, now.UnixNano()+1e9, l.Read(time.Time{}))
		l.SetClock(fixedClock{time.Unix(7, 5)})
		require.EqualValues(t, 7e9+5, l.Read(time.Time{}))
		require.True(t, time.Unix(7, 5).Equal(l.At(7e9+5)))
	})
}

func TestTimeline_stampKeepsTheCallersValue(t *testing.T) {
	l := NewTimeline()
	callers := l.At(0).Add(time.Second).UTC().Round(0)
	require.Equal(t, callers, l.Stamp(5, 5, callers))
	require.Equal(t, l.At(5), l.Stamp(5, 4, callers))
	require.Equal(t, l.At(5), l.Stamp(5, 5, time.Time{}))
}

func TestStoreMax(t *testing.T) {
	var v atomic.Int64
	for _, x := range []int64{5, 9, 7} {
		StoreMax(&v, x)
	}
	require.EqualValues(t, 9, v.Load())
}
