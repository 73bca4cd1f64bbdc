package quota

import "math/bits"

// maxFlight bounds the memory of an inFlight: the numbers from the oldest claim in flight to the
// latest one are at most so many.
const maxFlight = 1 << 18

// An inFlight is the set of claims that were granted and have no response yet. Claims are numbered
// from 1 in the order in which they were granted. The set has one bit for each number from the
// oldest claim in flight on. The zero inFlight is empty.
type inFlight struct {
	sent  uint64   // number of the latest claim; 0: none was granted
	count int64    // claims in flight: bits of words that are set
	open  int64    // units of these claims: one for each, unless the owner adds more, see endUnits
	base  uint64   // number of the lowest bit of words[0]
	words []uint64 // bit i of words[k] is claim base + 64 k + i
	hung  uint64   // claims up to this number are not part of open, see giveUp
}

// add adds one claim and returns its number. If the numbers become more than maxFlight, the claims
// in the older half of them count as responded to.
func (f *inFlight) add() uint64 {
	f.sent++
	if f.count == 0 {
		f.base, f.words = f.sent, f.words[:0]
	}
	at := f.sent - f.base
	if at >= maxFlight {
		f.dropOlderHalf()
		at = f.sent - f.base
	}
	for uint64(len(f.words)) <= at/64 {
		f.words = append(f.words, 0)
	}
	f.words[at/64] |= 1 << (at % 64)
	f.count++
	f.open++
	return f.sent
}

// end removes claim n. It reports whether n was in flight.
func (f *inFlight) end(n uint64) bool {
	at := n - f.base
	if n < f.base || at/64 >= uint64(len(f.words)) || f.words[at/64]&(1<<(at%64)) == 0 {
		return false
	}
	f.words[at/64] &^= 1 << (at % 64)
	f.count--
	if n > f.hung {
		f.open--
	}
	return true
}

// giveUp removes all claims, of one unit each, from open, because the server does not respond to them.
// They stay in the set.
func (f *inFlight) giveUp() { f.hung, f.open = f.sent, 0 }

// endUnits is end for a claim of n units, which was added to open.
func (f *inFlight) endUnits(claim uint64, n int64) bool {
	ended := f.end(claim)
	if ended {
		if f.open -= n - 1; f.count == 0 || f.open < f.count {
			f.open = f.count // dropOlderHalf does not know the units of claims
		}
	}
	return ended
}

// after returns how many of the claims in flight were granted after claim n.
func (f *inFlight) after(n uint64) int64 {
	if n < f.base {
		return f.count
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

func (f *inFlight) dropOlderHalf() {
	half := len(f.words) / 2
	for _, w := range f.words[:half] {
		f.count -= int64(bits.OnesCount64(w))
		f.open -= int64(bits.OnesCount64(w))
	}
	f.words = append(f.words[:0], f.words[half:]...)
	f.base += uint64(half) * 64
	if f.hung > 0 {
		f.open = f.after(f.hung)
	}
}

// span returns the number of claims from the oldest one in flight to the latest granted: so many
// responses at most may have arrived before that to the oldest. Zero means that none is in flight.
func (f *inFlight) span() int64 {
	for i, word := range f.words {
		if word != 0 && f.count > 0 {
			return int64(f.sent-f.base) - int64(i*64+bits.TrailingZeros64(word)) + 1
		}
	}
	return 0
}
