//go:build !race

package keyed

const Racing = false
