// Package inflight counts the claims that were granted and whose responses have not arrived, and numbers
// them in the order in which they were granted.
package inflight

import (
	"math/bits"
)

// Max bounds the memory of Claims: the numbers from the oldest claim in flight to the
// latest one are at most so many.
const Max = 1 << 18

// Claims is the set of claims that were granted and have no response yet. Claims are numbered
// from 1 in the order in which they were granted. The set has one bit for each number from the
// oldest claim in flight on. The zero Claims is empty.
type Claims struct {
	Sent  uint64   // number of the latest claim; 0: none was granted
	Count int64    // claims in flight: bits of words that are set
	Open  int64    // units of these claims: one for each, unless the owner adds more, see EndUnits
	base  uint64   // number of the lowest bit of words[0]
	words []uint64 // bit i of words[k] is claim base + 64 k + i
}

// Add adds one claim and returns its number. If the numbers become more than Max, the claims
// in the older half of them count as responded to.
func (f *Claims) Add() uint64 {
	f.Sent++
	if f.Count == 0 {
		f.base, f.words = f.Sent, f.words[:0]
	}
	at := f.Sent - f.base
	if at >= Max {
		f.dropOlderHalf()
		at = f.Sent - f.base
	}
	for uint64(len(f.words)) <= at/64 {
		f.words = append(f.words, 0)
	}
	f.words[at/64] |= 1 << (at % 64)
	f.Count++
	f.Open++
	return f.Sent
}

// End removes claim n. It reports whether n was in flight.
func (f *Claims) End(n uint64) bool {
	at := n - f.base
	if n < f.base || at/64 >= uint64(len(f.words)) || f.words[at/64]&(1<<(at%64)) == 0 {
		return false
	}
	f.words[at/64] &^= 1 << (at % 64)
	f.Count--
	f.Open--
	return true
}

// Contains reports whether claim n is in flight.
func (f *Claims) Contains(n uint64) bool { return n > 0 && f.After(n-1) > f.After(n) }

// EndUnits is end for a claim of n units, which was added to open.
func (f *Claims) EndUnits(claim uint64, n int64) bool {
	ended := f.End(claim)
	if ended {
		if f.Open -= n - 1; f.Count == 0 || f.Open < f.Count {
			f.Open = f.Count // dropOlderHalf does not know the units of claims
		}
	}
	return ended
}

// After returns how many of the claims in flight were granted after claim n.
func (f *Claims) After(n uint64) int64 {
	if n < f.base {
		return f.Count
	}
	at := n - f.base + 1
	if at/64 >= uint64(len(f.words)) {
		return 0
	}
	sum := bits.OnesCount64(f.words[at/64] >> (at % 64))
	for _, w := range f.words[at/64+1:] {
		sum += bits.OnesCount64(w)
	}
	return int64(sum)
}

func (f *Claims) dropOlderHalf() {
	half := len(f.words) / 2
	for _, w := range f.words[:half] {
		f.Count -= int64(bits.OnesCount64(w))
		f.Open -= int64(bits.OnesCount64(w))
	}
	f.words = append(f.words[:0], f.words[half:]...)
	f.base += uint64(half) * 64
}

// Span returns the number of claims from the oldest one in flight to the latest granted: so many
// responses at most may have arrived before that to the oldest. Zero means that none is in flight.
func (f *Claims) Span() int64 {
	for i, word := range f.words {
		if word != 0 && f.Count > 0 {
			return int64(f.Sent-f.base) - int64(i*64+bits.TrailingZeros64(word)) + 1
		}
	}
	return 0
}
