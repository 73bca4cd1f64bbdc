package sketch

import (
	"math/bits"
	"math/rand/v2"

	"github.com/zeebo/xxh3"
)

// hash returns a 64-bit hash of key. It is the same in every process, so that an encoded sketch,
// which contains the seed, can be read in another process.
func hash(key string, seed uint64) uint64 { return xxh3.HashStringSeed(key, seed) }

// seedOrRandom returns seed, or a random seed if seed is 0.
func seedOrRandom(seed uint64) uint64 {
	for seed == 0 {
		seed = rand.Uint64()
	}
	return seed
}

// fastRange maps the high bits of h to a number below n, without a division.
func fastRange(h uint64, n int) int {
	hi, _ := bits.Mul64(h, uint64(n))
	return int(hi)
}

// oddMultipliers derive further bits from a hash. Keys in the same line share the high bits of
// their hash; a multiplication by an odd constant moves the low bits to the top, and each constant
// gives different bits. The constants are fractions of the square roots of 2, 3, 5 and 7, made
// odd.
var oddMultipliers = [4]uint64{0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1}
