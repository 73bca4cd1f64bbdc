// Package bench measures heed beside its peers: the same work, in one process,
// by turns.
//
// Absolute figures of two runs cannot be compared, for the machine differs from
// minute to minute; two samples taken right after each other can. So every figure
// of BENCHMARKS.md is the median of ratios, each of two neighbouring samples.
// `make bench` writes that file; `go test -bench .` shows single pairs.
package bench

import "slices"

// A Side does n operations, one after another, and returns how many of them were
// granted. It is called by several goroutines at once.
type Side func(n int) (granted int)

// A Pair is the same work for heed and for a peer.
type Pair struct {
	Work    string // what is done
	Call    string // the call of ours that does it
	Peer    string // the call of theirs
	Granted bool   // whether each operation is granted, or none
	Heed    Side
	Theirs  Side
}

// Pairs returns everything that is measured.
func Pairs() []Pair {
	return slices.Concat(tokenBucketPairs(), keyedPairs(), sketchPairs(), transportPairs())
}
