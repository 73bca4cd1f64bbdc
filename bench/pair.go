// Package bench compares the performance of heed with that of its peers: the same work, in
// one process, in alternation.
//
// Absolute figures of two runs cannot be compared, because the load of the machine varies;
// two consecutive samples can. Therefore each figure in BENCHMARKS.md is the median of
// ratios of two consecutive samples. `make bench` writes that file; `go test -bench .`
// measures single pairs.
package bench

import "slices"

// A Side runs n operations in sequence, and returns how many of them were granted. It is
// called concurrently.
type Side func(n int) (granted int)

// A Pair is the same work for heed and for a peer.
type Pair struct {
	// Work describes the operation.
	Work string

	// Call is the function of ours that is called.
	Call string

	// Peer is the function of the peer that is called.
	Peer string

	// Granted reports whether all operations are granted; otherwise none is.
	Granted bool

	Heed   Side
	Theirs Side
}

// Pairs returns all pairs.
func Pairs() []Pair {
	return slices.Concat(tokenBucketPairs(), ratePairs(), keyedPairs(), sketchPairs(), transportPairs())
}
