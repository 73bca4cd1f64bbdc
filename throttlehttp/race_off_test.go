//go:build !race

package throttlehttp_test

const racing = false
