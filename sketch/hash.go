package sketch

import (
	"math/bits"
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// hash returns 64 bits of key. It is the same in every process, so that a sketch
// can be read where it was not made; the seed travels with it.
func hash(key string, seed uint64) uint64 { return xxh3.HashStringSeed(key, seed) }

// seedOrRandom returns seed, or one that nobody outside can guess if it is 0.
func seedOrRandom(seed uint64) uint64 {
	for seed == 0 {
		seed = rand.Uint64()
	}
	return seed
}

// fastRange maps h to a number below n by its high bits, without a division.
func fastRange(h uint64, n int) int {
	hi, _ := bits.Mul64(h, uint64(n))
	return int(hi)
}

// Keys that share a line share the high bits of their hash. Multiplied by an odd
// constant, the low bits reach the top, and each constant gives bits anew. These are
// fractions of the square roots of 2, 3, 5 and 7, made odd.
var oddMultipliers = [4]uint64{0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1}
