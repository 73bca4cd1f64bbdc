//go:build !race

package queue

const Racing = false
