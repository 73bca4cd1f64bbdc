// Package sketch counts and remembers very large numbers of keys in little memory, with errors of
// known size and direction.
//
//	seen := sketch.NewBloom(sketch.BloomConfig{Keys: 1_000_000, ErrorRate: 0.01})
//	if seen.TestAndAdd(key) {
//		// key was added before; in 1 % of the cases it was not
//	}
//
// # Choosing a type
//
//	question                                   type              errs by
//	was this key added?                        [Bloom]           saying yes too often
//	… within the last hour?                    [SlidingBloom]    saying yes too often
//	how often was it added?                    [CountMin]        counting too much
//	… within the last hour?                    [SlidingCountMin] counting too much
//	which keys are added most?                 [TopK]            counting too much
//	may this client, one of millions, send?    [Limiter]         rejecting too often
//
// Each type errs in one direction only, so that a limit based on it is never exceeded. For up to a
// few million keys keyed.NewBuckets is better: it takes about 36 bytes for each key, and has no errors.
//
// # Memory
//
// A Bloom filter of n keys and an error rate p takes about
//
//	bits = n * log2(1/p) / ln 2           if bits may be anywhere (Bloom 1970)
//	       n * 9.6 for p = 1 %
//
// [Bloom] stores all bits of a key in one cache line. The number of keys per line varies, which
// costs 6 % more memory at 1 % (10.2 bits per key), 20 % more at 0.01 %, and much more at smaller
// rates. [Bloom.ErrorRate] computes the rate exactly from the Poisson distribution of the keys per
// line.
//
// The memory of a count-min sketch does not depend on the number of keys. If N is the sum of all
// that is added, a count is too high by more than ε*N for at most a share of δ of the keys, with a
// memory of about
//
//	bytes = 113/ε for δ = 1 %, 311/ε for δ = 0.1 %
//
// See [CountMin.Epsilon]. The bound holds for all input that is chosen without knowledge of the
// seed. On real streams, in which few keys are frequent, the error is smaller by orders of
// magnitude, because updates are conservative.
//
// A [TopK] of m counters finds every key to which more than N/m was added. A [Limiter] takes about
// 4 bytes for each client and 92 more for each client that takes more than one unit in a window,
// at an error rate of 1 %; [Limiter.Bytes] and [Limiter.ErrorRate] return the exact values. `go
// run ./bench/sketch` prints the computed and the measured errors of 10 million keys in 16 MiB.
//
// # Seeds
//
// Keys are hashed with xxh3 and a seed. The seed is random unless one is given, so that clients
// cannot choose keys that share the bits or counters of others. Two sketches can be merged only if
// they have the same seed: in that case set it, keep it secret, and keep encoded sketches secret
// too, because they contain it. xxh3 is not a cryptographic hash; if attackers can observe which
// keys collide, pass a keyed cryptographic hash of each key instead of the key.
//
// # Time
//
// Methods of sliding sketches have a parameter for the current time, and a Limiter has a
// throttle.Clock. Windows are counted from the Unix epoch. There are no background goroutines, and
// nothing is cleared when a window ends: each line stores the number of its window, and the first
// write in a later window clears the line.
package sketch
