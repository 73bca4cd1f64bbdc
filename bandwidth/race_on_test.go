//go:build race

package bandwidth_test

// racing reports whether the race detector is on. It makes sync.Pool drop items at
// random, so allocations cannot be counted.
const racing = true
