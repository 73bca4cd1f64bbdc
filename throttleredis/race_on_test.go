//go:build race

package throttleredis

// racing is true under the race detector: a sync.Pool then drops some of its items on purpose,
// so that code that uses it allocates occasionally.
const racing = true
