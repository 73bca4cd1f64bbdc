package backoff

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// An Offset is a fraction of a period at which a client does its work, so that clients with the
// same schedule do not all act at the same time. It is stored in units of 1/2^64 of any span:
//
//	12:00:00            In(time.Minute)             12:01:00
//	────+─────────────────────+────────────────────────+──▶ time
//	    |<--- Offset/2^64 --->|
//
// An Offset does not change, so the intervals of a regular job stay equal. It is drawn once by
// RandomOffset and kept, or derived by OffsetFor from an identity of the client. The zero
// Offset means no delay.
type Offset uint64

// RandomOffset returns a random Offset.
func RandomOffset() Offset { return Offset(rand.Uint64()) }

// OffsetFor returns the Offset of an identity, such as a serial number. The result is the same
// in each process, on each machine and in each version of this package. It depends on the
// identity only: if a device has several jobs, add the name of the job to the identity.
func OffsetFor(identity string) Offset {
	// The hash is FNV-1a. Its upper bits, which determine the result, hardly depend on the
	// last characters, so the finalizer of MurmurHash3 mixes them.
	h := uint64(14695981039346656037)
	for i := range len(identity) {
		h = (h ^ uint64(identity[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return Offset(h ^ h>>33)
}

// In returns the offset in span: at least 0 and less than span. It is 0 if span is not
// positive.
func (s Offset) In(span time.Duration) time.Duration {
	offset, _ := bits.Mul64(uint64(s), uint64(max(span, 0)))
	return time.Duration(offset)
}

// Next returns the first instant after now that is at the offset in a period. Periods are
// counted from the zero Time in UTC, as in [time.Time.Truncate]: a day starts at midnight and a
// week on Monday. Next returns now if period is not positive.
//
// Offsets fill the whole period. To spread a job over a short span only, such as the first
// minute after noon, add In(time.Minute) to noon instead.
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
