package bench

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/heed-go/heed/sketch"
	boom "github.com/tylertreat/BoomFilters"
)

// sketchKeys is the number of different keys of 16 bytes. The filters are sized for all of
// them.
const sketchKeys = 1 << 20

// sketchPairs compares sketches for a million keys. The peers are not safe for concurrent
// use: with more than one goroutine they are guarded by a mutex. The count-min sketches
// have the same memory; TestSketches_countNoWorseThanPeers compares their errors.
func sketchPairs() []Pair {
	ours, theirs := sketch.NewBloom(bloomSize), bloom.NewWithEstimates(sketchKeys, 0.01)
	for i := range sketchKeys / 2 {
		ours.Add(stringKey(i))
		theirs.Add(bytesKey(i))
	}
	counts, peer := sketch.NewCountMin(sketch.CountMinConfig{Bytes: boomBytes}), newBoom()
	return []Pair{
		{
			Work: "Bloom filter, key is new", Call: "sketch.Bloom TestAndAdd", Peer: "bits-and-blooms TestAndAdd", Granted: true,
			Heed: withNewState(func() func(int) { b := sketch.NewBloom(bloomSize); return func(i int) { b.TestAndAdd(stringKey(i)) } }, unsynchronized),
			Theirs: withNewState(func() func(int) {
				b := bloom.NewWithEstimates(sketchKeys, 0.01)
				return func(i int) { b.TestAndAdd(bytesKey(i)) }
			}, locked()),
		},
		{
			Work: "Bloom filter, half of the keys are there", Call: "sketch.Bloom Test", Peer: "bits-and-blooms Test", Granted: true,
			Heed:   eachKey(func(i int) { ours.Test(stringKey(i)) }, unsynchronized),
			Theirs: eachKey(func(i int) { theirs.Test(bytesKey(i)) }, locked()),
		},
		{
			Work: "count-min sketch, add", Call: "sketch.CountMin Add, atomic", Peer: "BoomFilters Add", Granted: true,
			Heed:   eachKey(func(i int) { counts.Add(stringKey(i), 1) }, unsynchronized),
			Theirs: eachKey(func(i int) { peer.Add(bytesKey(i)) }, locked()),
		},
		{
			Work: "count-min sketch, add and estimate", Call: "sketch.CountMin Add", Peer: "BoomFilters Add, Count", Granted: true,
			Heed:   eachKey(func(i int) { counts.Add(stringKey(i), 1) }, unsynchronized),
			Theirs: eachKey(func(i int) { peer.Add(bytesKey(i)).Count(bytesKey(i)) }, locked()),
		},
		{
			Work: "count-min sketch, estimate", Call: "sketch.CountMin Count", Peer: "BoomFilters Count", Granted: true,
			Heed:   eachKey(func(i int) { counts.Count(stringKey(i)) }, unsynchronized),
			Theirs: eachKey(func(i int) { peer.Count(bytesKey(i)) }, locked()),
		},
	}
}

var bloomSize = sketch.BloomConfig{Keys: sketchKeys, ErrorRate: 0.01}

// boomBytes is the memory of newBoom: 7 rows of 27,183 counters of 8 bytes.
const boomBytes = 7 * 27183 * 8

func newBoom() *boom.CountMinSketch { return boom.NewCountMinSketch(0.0001, 0.001) }

// keyBytes and keyString hold the keys contiguously, so that reading one is cheap.
var keyBytes, keyString = sketchKeyText()

func sketchKeyText() ([]byte, string) {
	all := make([]byte, 0, 16*sketchKeys)
	for i := range uint64(sketchKeys) {
		all = binary.LittleEndian.AppendUint64(all, i*0x9e3779b97f4a7c15)
		all = binary.LittleEndian.AppendUint64(all, i)
	}
	return all, string(all)
}

func stringKey(i int) string {
	at := i % sketchKeys * 16
	return keyString[at : at+16]
}

func bytesKey(i int) []byte {
	at := i % sketchKeys * 16
	return keyBytes[at : at+16]
}

// A synchronize function wraps every operation of a side.
type synchronize func(op func(int), i int)

func unsynchronized(op func(int), i int) { op(i) }

// locked returns a function that runs one operation at a time, at no cost if there is only
// one goroutine.
func locked() synchronize {
	var mu sync.Mutex
	return func(op func(int), i int) {
		if runtime.GOMAXPROCS(0) == 1 {
			op(i)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		op(i)
	}
}

// eachKey returns a Side that runs op with one key after the other, and continues at the
// key where it stopped before.
func eachKey(op func(i int), g synchronize) Side {
	return withNewState(func() func(int) { return op }, g)
}

// withNewState is like eachKey, but creates op anew before the keys repeat, so that each
// key is new to it.
func withNewState(newOp func() func(i int), g synchronize) Side {
	var next atomic.Int64
	var op atomic.Pointer[func(int)]
	return func(n int) int {
		first := int(next.Add(int64(n))) - n
		for i := first; i < first+n; i++ {
			if i%sketchKeys == 0 || op.Load() == nil {
				fresh := newOp()
				op.Store(&fresh)
			}
			g(*op.Load(), i)
		}
		return n
	}
}
