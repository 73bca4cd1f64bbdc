//go:build race

package keyed

// Racing: under the race detector a sync.Pool forgets some of what it is given, on
// purpose, so that what it serves allocates now and then.
const Racing = true
