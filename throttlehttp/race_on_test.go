//go:build race

package throttlehttp_test

// racing: the race detector makes a sync.Pool forget at random, so that allocations
// cannot be counted where one is used.
const racing = true
