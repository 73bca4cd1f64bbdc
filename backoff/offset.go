package backoff

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// Offset is a client's place in a span of time, so that clients that are told the
// same time do not all come at it. It is a fraction, in 1/2^64 of any span:
//
//	12:00:00            In(time.Minute)             12:01:00
//	────+─────────────────────+────────────────────────+──▶ time
//	    |<--- Splay/2^64 ---->|
//
// A Splay stays the same, so that the gaps of a regular job do: drawn once by
// RandomOffset and kept, or derived by OffsetFor from what tells clients apart. The
// zero Splay is no delay.
type Offset uint64

// RandomOffset draws a Splay.
func RandomOffset() Offset { return Offset(rand.Uint64()) }

// OffsetFor returns the Splay of an identity, such as a serial number: the same in
// each process, on each machine and in each version of this package. It tells
// nothing apart from its argument: where a device has several jobs, add the name of
// the job.
//
// The hash is FNV-1a. Its upper bits, which decide here, hardly depend on the last
// characters, so the finalizer of MurmurHash3 mixes them.
func OffsetFor(identity string) Offset {
	h := uint64(14695981039346656037)
	for i := range len(identity) {
		h = (h ^ uint64(identity[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return Offset(h ^ h>>33)
}

// In returns the place in span: at least 0 and less than span. It is 0 if span is
// not positive.
func (s Offset) In(span time.Duration) time.Duration {
	if span <= 0 {
		return 0
	}
	offset, _ := bits.Mul64(uint64(s), uint64(span))
	return time.Duration(offset)
}

// Next returns the first instant after now that is the place in a period. Periods
// follow one another from the zero Time, in UTC, as in [time.Time.Truncate]: a day
// starts at midnight and a week on Monday. It returns now if period is not positive.
//
// The places fill the whole period. For jobs that belong close to its start, say
// the first minute after noon, add In(time.Minute) to noon instead.
func (s Offset) Next(now time.Time, period time.Duration) time.Time {
	if period <= 0 {
		return now
	}
	next := now.Truncate(period).Add(s.In(period))
	if !next.After(now) {
		next = next.Add(period)
	}
	return next
}
