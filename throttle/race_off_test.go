//go:build !race

package throttle

const Racing = false
