package quota

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// inFlightOracle is an inFlight as a map.
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

// An inFlight is the set of claims without a response: which they are, how many are later than one of
// them, and how many were granted since the oldest.
func TestInFlight_isASet(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		var f inFlight
		o := inFlightOracle{open: make(map[uint64]bool)}
		most := 1 + random.IntN(300) // in flight
		for range 1500 {
			if len(o.open) < most && random.IntN(2) == 0 {
				o.sent++
				o.open[o.sent] = true
				require.Equal(t, o.sent, f.add())
			} else {
				n := o.sent + 2 - uint64(random.IntN(most+70))
				require.Equal(t, o.open[n], f.end(n), "claim %d of %d", n, o.sent)
				delete(o.open, n)
			}
			n := o.sent + 1 - min(uint64(random.IntN(most+70)), o.sent)
			require.EqualValues(t, len(o.open), f.open)
			require.Equal(t, o.after(n), f.after(n), "after %d of %d", n, o.sent)
			require.Equal(t, o.span(), f.span())
		}
	}
}

// Numbers of 64 claims share a word: the first and the last ones of a word.
func TestInFlight_boundariesOfWords(t *testing.T) {
	var f inFlight
	for n := range uint64(130) {
		require.Equal(t, n+1, f.add())
		require.EqualValues(t, n+1, f.span())
		require.EqualValues(t, n+1, f.open)
	}
	for _, tt := range []struct {
		n     uint64
		after int64
	}{{0, 130}, {1, 129}, {63, 67}, {64, 66}, {65, 65}, {127, 3}, {128, 2}, {129, 1}, {130, 0}, {131, 0}, {300, 0}} {
		require.Equal(t, tt.after, f.after(tt.n), "after %d", tt.n)
	}
	for _, n := range []uint64{0, 131, 192, 193, 1 << 40} {
		require.False(t, f.end(n), "%d is not in flight", n)
	}
	for n := uint64(1); n <= 129; n++ {
		require.True(t, f.end(n))
		require.False(t, f.end(n), "%d has ended", n)
		require.EqualValues(t, 130-n, f.span())
		require.EqualValues(t, 130-n, f.after(n))
	}
	require.True(t, f.end(130))
	require.Zero(t, f.span())
	require.EqualValues(t, 131, f.add())
	require.EqualValues(t, 1, f.span())
	require.Len(t, f.words, 1, "the memory of claims that have ended is used again")
}

// If the oldest claim in flight is maxFlight claims older than the latest one, the older half counts as
// responded to.
func TestInFlight_memoryIsBounded(t *testing.T) {
	var f inFlight
	first := f.add()
	second := f.add()
	for range maxFlight - 3 {
		f.end(f.add())
	}
	last := f.add()
	require.EqualValues(t, maxFlight, last)
	require.EqualValues(t, 3, f.open)
	require.EqualValues(t, maxFlight, f.span())
	next := f.add()
	require.EqualValues(t, 2, f.open, "the first two count as responded to")
	require.EqualValues(t, 2, f.after(0))
	require.False(t, f.end(first))
	require.False(t, f.end(second))
	require.EqualValues(t, 2, f.span())
	require.Len(t, f.words, maxFlight/64/2+1)
	require.True(t, f.end(last))
	require.True(t, f.end(next))
	require.Zero(t, f.open)

	f = inFlight{}
	for range maxFlight {
		f.add()
	}
	require.Len(t, f.words, maxFlight/64)
	require.EqualValues(t, maxFlight, f.open)
	f.add()
	require.EqualValues(t, maxFlight/2+1, f.open)
	require.EqualValues(t, maxFlight/2+1, f.span())
	require.False(t, f.end(maxFlight/2))
	require.True(t, f.end(maxFlight/2+1))
}

// Claims that were given up stay in the set, but do not count as open.
func TestInFlight_giveUp(t *testing.T) {
	for _, given := range []int{1, 63, 64, 65, 200} {
		var f inFlight
		for range given {
			f.add()
		}
		f.giveUp()
		require.EqualValues(t, []int64{0, int64(given)}, []int64{f.open, f.count})
		n := f.add()
		require.EqualValues(t, []int64{1, int64(given) + 1}, []int64{f.open, f.count})
		require.True(t, f.end(1))
		require.False(t, f.end(1))
		require.EqualValues(t, []int64{1, int64(given)}, []int64{f.open, f.count})
		require.True(t, f.end(n))
		require.EqualValues(t, []int64{0, int64(given) - 1}, []int64{f.open, f.count})
	}
	var f inFlight
	f.add()
	f.giveUp()
	for range maxFlight {
		f.add()
	}
	require.EqualValues(t, f.count, f.open, "the older half was dropped, and with it the one that was given up")
	f.giveUp()
	for range maxFlight / 2 {
		f.add()
	}
	require.EqualValues(t, maxFlight/2, f.open)
}
