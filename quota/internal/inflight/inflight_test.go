package inflight

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// inFlightOracle is a Claims as a map.
type inFlightOracle struct {
	sent uint64
	open map[uint64]bool
}

func (o *inFlightOracle) after(n uint64) (sum int64) {
	for k := range o.open {
		if k > n {
			sum++
		}
	}
	return sum
}

func (o *inFlightOracle) span() int64 {
	oldest := o.sent + 1
	for k := range o.open {
		oldest = min(oldest, k)
	}
	return int64(o.sent + 1 - oldest)
}

// A Claims is the set of claims without a response: which they are, how many are later than one of
// them, and how many were granted since the oldest.
func TestInFlight_isASet(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		var f Claims
		o := inFlightOracle{open: make(map[uint64]bool)}
		most := 1 + random.IntN(300) // in flight
		for range 1500 {
			if len(o.open) < most && random.IntN(2) == 0 {
				o.sent++
				o.open[o.sent] = true
				require.Equal(t, o.sent, f.Add())
			} else {
				n := o.sent + 2 - uint64(random.IntN(most+70))
				require.Equal(t, o.open[n], f.End(n), "claim %d of %d", n, o.sent)
				delete(o.open, n)
			}
			n := o.sent + 1 - min(uint64(random.IntN(most+70)), o.sent)
			require.EqualValues(t, len(o.open), f.Open)
			require.Equal(t, o.after(n), f.After(n), "after %d of %d", n, o.sent)
			require.Equal(t, o.span(), f.Span())
		}
	}
}

// Numbers of 64 claims share a word: the first and the last ones of a word.
func TestInFlight_boundariesOfWords(t *testing.T) {
	var f Claims
	for n := range uint64(130) {
		require.Equal(t, n+1, f.Add())
		require.EqualValues(t, n+1, f.Span())
		require.EqualValues(t, n+1, f.Open)
	}
	for _, tt := range []struct {
		n     uint64
		after int64
	}{{0, 130}, {1, 129}, {63, 67}, {64, 66}, {65, 65}, {127, 3}, {128, 2}, {129, 1}, {130, 0}, {131, 0}, {300, 0}} {
		require.Equal(t, tt.after, f.After(tt.n), "after %d", tt.n)
	}
	for _, n := range []uint64{0, 131, 192, 193, 1 << 40} {
		require.False(t, f.End(n), "%d is not in flight", n)
	}
	for n := uint64(1); n <= 129; n++ {
		require.True(t, f.End(n))
		require.False(t, f.End(n), "%d has ended", n)
		require.EqualValues(t, 130-n, f.Span())
		require.EqualValues(t, 130-n, f.After(n))
	}
	require.True(t, f.End(130))
	require.Zero(t, f.Span())
	require.EqualValues(t, 131, f.Add())
	require.EqualValues(t, 1, f.Span())
	require.Len(t, f.words, 1, "the memory of claims that have ended is used again")
}

// If the oldest claim in flight is Max claims older than the latest one, the older half counts as
// responded to.
func TestInFlight_memoryIsBounded(t *testing.T) {
	var f Claims
	first := f.Add()
	second := f.Add()
	for range Max - 3 {
		f.End(f.Add())
	}
	last := f.Add()
	require.EqualValues(t, Max, last)
	require.EqualValues(t, 3, f.Open)
	require.EqualValues(t, Max, f.Span())
	next := f.Add()
	require.EqualValues(t, 2, f.Open, "the first two count as responded to")
	require.EqualValues(t, 2, f.After(0))
	require.False(t, f.End(first))
	require.False(t, f.End(second))
	require.EqualValues(t, 2, f.Span())
	require.Len(t, f.words, Max/64/2+1)
	require.True(t, f.End(last))
	require.True(t, f.End(next))
	require.Zero(t, f.Open)

	f = Claims{}
	for range Max {
		f.Add()
	}
	require.Len(t, f.words, Max/64)
	require.EqualValues(t, Max, f.Open)
	f.Add()
	require.EqualValues(t, Max/2+1, f.Open)
	require.EqualValues(t, Max/2+1, f.Span())
	require.False(t, f.End(Max/2))
	require.True(t, f.End(Max/2+1))
}

// A claim of several units ends with all of them. If the older half was dropped, whose units are not known, at
// least one unit is open for each claim in flight.
func TestInFlight_units(t *testing.T) {
	var f Claims
	a, b := f.Add(), f.Add()
	f.Open += 4 // b is a claim of five units
	require.True(t, f.Contains(a))
	require.True(t, f.Contains(b))
	require.False(t, f.Contains(0))
	require.False(t, f.Contains(b+1))
	require.True(t, f.EndUnits(a, 1))
	require.EqualValues(t, []int64{5, 1}, []int64{f.Open, f.Count})
	require.False(t, f.Contains(a))
	require.False(t, f.EndUnits(a, 1), "it has ended")
	require.False(t, f.EndUnits(b+1, 5), "it was not granted")
	require.EqualValues(t, 5, f.Open)
	require.True(t, f.EndUnits(b, 5))
	require.EqualValues(t, []int64{0, 0}, []int64{f.Open, f.Count})

	f.Add()
	f.Open += 4
	for range Max {
		f.Add()
	}
	require.Equal(t, f.Count+4, f.Open, "the units of the claim that was dropped are open")
	for n := f.Sent - uint64(f.Count) + 1; f.Count > 1; n++ {
		f.EndUnits(n, 1)
	}
	require.True(t, f.EndUnits(f.Sent, 1))
	require.Zero(t, f.Open, "until no claim is in flight")
	f.Add()
	f.Add()
	f.EndUnits(f.Sent, 9)
	require.EqualValues(t, 1, f.Open, "at least one for each claim")
}
