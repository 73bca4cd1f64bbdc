package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/sketch"
)

// With the same memory and the same keys, few of which are frequent, our mean error is not
// larger.
func TestSketches_countNoWorseThanPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	ours, theirs := sketch.NewCountMin(sketch.CountMinConfig{Bytes: boomBytes, Seed: 1}), newBoom()
	require.LessOrEqual(t, ours.Bytes(), int64(boomBytes))
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, sketchKeys-1)
	added := map[int]uint64{}
	for range 1_000_000 {
		i := int(zipf.Uint64())
		added[i]++
		ours.Add(stringKey(i), 1)
		theirs.Add(bytesKey(i))
	}
	var excess, peer uint64
	for i, n := range added {
		excess += uint64(ours.Count(stringKey(i))) - n
		peer += theirs.Count(bytesKey(i)) - n
	}
	t.Logf("mean error: heed %.2f, BoomFilters %.2f", float64(excess)/float64(len(added)), float64(peer)/float64(len(added)))
	require.LessOrEqual(t, excess, peer)
}
