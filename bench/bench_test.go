package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func BenchmarkPairs(b *testing.B) {
	for _, p := range Pairs() {
		for name, side := range map[string]Side{"heed": p.Heed, "peer": p.Theirs} {
			b.Run(p.Work+"/"+p.Peer+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				side(b.N)
			})
		}
	}
}

func TestPairs_doTheNamedWork(t *testing.T) {
	for _, p := range Pairs() {
		want := map[bool]int{true: 100}[p.Granted]
		require.Equal(t, want, p.Heed(100), "%s: heed", p.Work)
		require.Equal(t, want, p.Theirs(100), "%s: %s", p.Work, p.Peer)
	}
}

func TestCompare_measuresBothSidesInEveryRound(t *testing.T) {
	var order []string
	side := func(name string) Side {
		return func(n int) int {
			if len(order) == 0 || order[len(order)-1] != name {
				order = append(order, name)
			}
			return n
		}
	}
	p := Pair{Work: "nothing", Granted: true, Heed: side("heed"), Theirs: side("peer")}
	got, err := Compare([]Pair{p}, []int{1}, 3, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"heed", "peer", "heed", "peer"}, order, "the peer goes first in every other round")
	require.Len(t, got, 1)
	require.LessOrEqual(t, got[0].MinRatio, got[0].MaxRatio)
}

func TestCompare_rejectsAPairThatDoesOtherWork(t *testing.T) {
	all, none := func(n int) int { return n }, func(int) int { return 0 }
	_, err := Compare([]Pair{{Work: "w", Granted: true, Heed: all, Theirs: none}}, []int{2}, 1, time.Millisecond)
	require.ErrorContains(t, err, "0 of 2000 operations were granted")
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
}
