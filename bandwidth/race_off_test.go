//go:build !race

package bandwidth_test

const racing = false
