// Package ticks holds the arithmetic that the packages of heed share: saturating int64
// operations, instants as nanoseconds on a Timeline, and a Stopwatch for claims in
// progress. A result that an int64 cannot express saturates: it is math.MaxInt64 or
// math.MinInt64.
package ticks

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Never is a reading before all others. It is the latest reading of an unused limiter.
const Never = math.MinInt64

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
	case a < 0 && (hi != 0 || lo > math.MaxInt64):
		return math.MinInt64
	case hi != 0 || lo > math.MaxInt64:
		return math.MaxInt64
	}
	return a * b
}

// StoreMax sets v to x if x is greater.
func StoreMax(v *atomic.Int64, x int64) {
	for old := v.Load(); old < x && !v.CompareAndSwap(old, x); {
		old = v.Load()
	}
}

// GCD returns the greatest common divisor of a and b, which must not be negative. If one
// of them is 0, it returns the other.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Later returns the later one of a and b.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// FloorDiv returns a/b rounded down. b must be positive.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// MulDivUp returns a*b/c rounded up, saturated. a and b must not be negative, and c must be
// positive. It is faster than MulDivCeil.
func MulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	if hi += carry; hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// MulDivDown returns a*b/c rounded down, saturated at math.MaxInt64 and -math.MaxInt64. An
// a of math.MinInt64 counts as -math.MaxInt64. b must not be negative, and c must be
// positive.
func MulDivDown(a, b, c int64) int64 {
	if a < 0 {
		return -MulDivUp(-max(a, -math.MaxInt64), b, c)
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// MulDivCeil returns a*b/c rounded up, saturated as in MulDivDown. b must not be negative,
// and c must be positive.
func MulDivCeil(a, b, c int64) int64 {
	if a < 0 {
		return -MulDivDown(-max(a, -math.MaxInt64), b, c)
	}
	return MulDivUp(a, b, c)
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
