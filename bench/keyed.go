package bench

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Keys holds a million different keys of 16 bytes, and an order of accesses in which some
// keys are much more frequent than others.
type Keys struct {
	all   string
	order []uint32
}

const clientBytes = 16

// NewKeys returns keys in an order by Zipf's law: the i-th most frequent key has a
// frequency proportional to i^-1.1.
func NewKeys() Keys {
	const n = 1 << 20
	b := make([]byte, 0, n*clientBytes)
	for i := range uint64(n) {
		b = append(b, "client: "...)
		b = binary.BigEndian.AppendUint64(b, i*0x9e3779b97f4a7c15)
	}
	k := Keys{string(b), make([]uint32, 1<<22)}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, n-1)
	for i := range k.order {
		k.order[i] = uint32(zipf.Uint64())
	}
	return k
}

// Len returns the number of different keys.
func (k Keys) Len() int { return len(k.all) / clientBytes }

// Key returns the i-th key.
func (k Keys) Key(i int) string { return k.all[i*clientBytes : (i+1)*clientBytes] }

// Next returns the key of the i-th access.
func (k Keys) Next(i int) string { return k.Key(int(k.order[i&(len(k.order)-1)])) }

var zipfKeys = sync.OnceValue(NewKeys)

// perKey is more than the benchmarks use of the most frequent key. The peer has this limit
// per hour: after its interval it adds fewer tokens than configured.
const perKey = 100_000_000

// keyedPairs compares limiters per key after a million keys have been used.
func keyedPairs() []Pair {
	return []Pair{{
		Work: "a million keys, zipf", Call: "keyed.NewBuckets Reserve", Peer: "sethvargo/go-limiter Take", Granted: true,
		Heed: askInOrder(sync.OnceValue(func() func(string) bool {
			return warmedUp(reserveKey(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(perKey), Max: 1 << 20})))
		})),
		Theirs: askInOrder(sync.OnceValue(func() func(string) bool {
			return warmedUp(takeKey())
		})),
	}}
}

func reserveKey(l throttle.Limiter) func(string) bool {
	ctx := context.Background()
	return func(key string) bool {
		d, err := l.Reserve(ctx, throttle.Claim{Key: key})
		return err == nil && d.OK
	}
}

func takeKey() func(string) bool {
	s, err := memorystore.New(&memorystore.Config{Tokens: perKey, Interval: time.Hour, SweepInterval: time.Hour, SweepMinTTL: time.Hour, InitialAlloc: 1 << 20})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	return func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		return err == nil && ok
	}
}

// warmedUp returns ask after it was called once for every key.
func warmedUp(ask func(string) bool) func(string) bool {
	k := zipfKeys()
	for i := range k.Len() {
		ask(k.Key(i))
	}
	return ask
}

// askInOrder returns a Side that accesses keys in order, beginning at a random position.
func askInOrder(ready func() func(string) bool) Side {
	return func(n int) (granted int) {
		ask, k, from := ready(), zipfKeys(), rand.IntN(1<<22)
		for i := range n {
			if ask(k.Next(from + i)) {
				granted++
			}
		}
		return granted
	}
}
