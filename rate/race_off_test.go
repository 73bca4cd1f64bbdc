//go:build !race

package rate_test

const racing = false
