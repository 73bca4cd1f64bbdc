//go:build !race

package heed

const racing = false
