package quota

import (
	"math/bits"
)

// maxFlight bounds the memory of a flight: so many numbers may lie between the
// oldest claim without an answer and the newest.
const maxFlight = 1 << 18

// A inFlight is the set of claims that were granted and have no answer yet. Claims
// are numbered from 1 in the order of their grants, and a bit each is kept from
// the oldest that is still open.
type inFlight struct {
	sent  uint64 // number of the latest claim
	base  uint64 // number of the lowest bit of words[0]
	words []uint64
	open  int64 // bits that are set
}

// add numbers one more claim. Where that would take too much memory the oldest
// open claims count as answered.
func (f *inFlight) add() uint64 {
	f.sent++
	if f.open == 0 {
		f.base, f.words = f.sent, f.words[:0]
	}
	at := f.sent - f.base
	if at >= maxFlight {
		f.forget()
		at = f.sent - f.base
	}
	for uint64(len(f.words)) <= at/64 {
		f.words = append(f.words, 0)
	}
	f.words[at/64] |= 1 << (at % 64)
	f.open++
	return f.sent
}

// end marks a claim as answered. It reports false if it was already.
func (f *inFlight) end(n uint64) bool {
	at := n - f.base
	if n < f.base || at/64 >= uint64(len(f.words)) || f.words[at/64]&(1<<(at%64)) == 0 {
		return false
	}
	f.words[at/64] &^= 1 << (at % 64)
	f.open--
	return true
}

// after returns how many claims later than n are open.
func (f *inFlight) after(n uint64) int64 {
	if n < f.base {
		return f.open
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

// forget drops the older half of the numbers.
func (f *inFlight) forget() {
	half := len(f.words) / 2
	for _, w := range f.words[:half] {
		f.open -= int64(bits.OnesCount64(w))
	}
	f.words = append(f.words[:0], f.words[half:]...)
	f.base += uint64(half) * 64
}
