//go:build race

package keyed

// Racing: under the race detector a sync.Pool intentionally drops some of its objects, so
// that its users sometimes allocate.
const Racing = true
