//go:build race

package queue

// Racing is true under the race detector: a sync.Pool then drops some of its items on purpose,
// so that code that uses it allocates occasionally.
const Racing = true
