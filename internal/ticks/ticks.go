// Package ticks holds the arithmetic that limiters share: saturating int64 operations,
// instants as nanoseconds on a Timeline, and a Stopwatch for claims in progress.
package ticks

import (
	"math"
	"math/bits"
	"time"
)

// Add returns a+b, saturated.
func Add(a, b int64) int64 {
	if s := a + b; (s > a) == (b > 0) {
		return s
	}
	if b > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Sub returns a-b, saturated.
func Sub(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	if b > 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

// Mul returns a*b, saturated. b must not be negative.
func Mul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(b))
	switch {
	case a == math.MinInt64 || (a < 0 && (hi != 0 || lo > math.MaxInt64)):
		return math.MinInt64
	case hi != 0 || lo > math.MaxInt64:
		return math.MaxInt64
	}
	return a * b
}

// MulDivUp returns a*b/c rounded up, saturated. a must not be negative, b and c must be
// positive.
func MulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	if hi += carry; hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// GCD returns the greatest common divisor of a and b, which must not be negative.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Int64 returns f as an int64, saturated. NaN gives math.MaxInt64.
func Int64(f float64) int64 {
	switch {
	case f < math.MinInt64:
		return math.MinInt64
	case f < math.MaxInt64:
		return int64(f)
	}
	return math.MaxInt64
}

// CeilDuration returns ns nanoseconds rounded up, saturated.
func CeilDuration(ns float64) time.Duration { return time.Duration(Int64(math.Ceil(ns))) }
