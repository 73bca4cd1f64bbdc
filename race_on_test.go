//go:build race

package heed

// racing: the race detector makes a sync.Pool forget at random, so that
// allocations cannot be counted.
const racing = true
