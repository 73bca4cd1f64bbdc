// Package sketch counts and remembers for huge numbers of keys in little memory, at the
// price of errors whose size and direction are known.
//
// # Which one
//
//	question                                   type              errs by
//	was this key added?                        [Bloom]           saying yes too often
//	… within the last hour?                    [SlidingBloom]    saying yes too often
//	how often was it added?                    [CountMin]        counting too much
//	… within the last hour?                    [SlidingCountMin] counting too much
//	which keys are added most?                 [Top]             counting too much
//	may this client, one of millions, go on?   [Limiter]         refusing too often
//
// All of them err on one side only, and it is the side on which a limit is kept. Where a
// million keys are few, keyed.Limiter is better: it takes some 40 to 110 bytes for each,
// and does not err at all.
//
// # How much memory
//
// A Bloom filter of n keys and an error rate p takes about
//
//	bits = n * log2(1/p) / ln 2           if bits lay anywhere (Bloom 1970)
//	       n * 9.6 for p = 1 %
//
// Ours lie in one cache line for each key, whose load varies; that costs 6 % more at 1 %
// (10.2 bits a key), a fifth more at 0.01 %, and makes much smaller rates dear.
// [Bloom.ErrorRate] computes it exactly from the Poisson distribution of the load.
//
// A count-min sketch does not care how many keys there are. With N added in all, a count
// is too high by more than ε*N for at most a share of δ of the keys, with a memory of about
//
//	bytes = 113/ε for δ = 1 %, 311/ε for δ = 0.1 %
//
// See [CountMin.Epsilon]. The bound holds for whatever is added without knowledge of the
// seed; on real streams, in which few keys are many, and with the conservative update the
// error is smaller by orders of magnitude.
//
// A [Top] of m counters finds every key that has more than N/m. A [Limiter] takes about 4
// bytes for each client that comes and 92 more for each that comes again, at an error rate
// of 1 %; [Limiter.Bytes] and [Limiter.ErrorRate] say it exactly. `go run ./bench/sketch`
// prints what 10 million keys in 16 MiB come to, as computed and as measured.
//
// # Seeds
//
// Keys are hashed with xxh3 and a seed. It is random unless one is given, so that clients
// cannot choose keys that share the bits or counters of others. Two sketches can be merged
// only if they have the same seed: give it then, keep it secret, and keep encoded sketches
// secret too, for it is in them. xxh3 is fast, but no cryptographic hash; where attackers
// can watch which keys collide, hash keys with a secret before they come here.
//
// # Time
//
// What slides takes a reading of the clock, or has a throttle.Clock. Windows are counted
// from the Unix epoch. Nothing runs in the background and nothing is cleared when a window
// ends: each line knows the window that it belongs to, and is wiped by whoever writes
// there first in a new one.
package sketch
