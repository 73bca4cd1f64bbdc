//go:build race

package throttlehttp_test

// racing is true with the race detector, which makes sync.Pool drop items at random, so that
// allocations cannot be counted exactly.
const racing = true
