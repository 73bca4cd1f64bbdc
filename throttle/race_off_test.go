//go:build !race

package throttle_test

const racing = false
