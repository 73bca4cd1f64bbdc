//go:build !race

package throttleredis

const racing = false
