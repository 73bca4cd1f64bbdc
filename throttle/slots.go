package throttle

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

// A slot is what one key has of a region: 16 bytes.
type slot struct {
	id  atomic.Uint64 // hash of the key; 0: no key yet
	tat atomic.Int64  // as in TokenBucket, in ticks; closed: a key is just moving in
}

const (
	shared = 1 // id of the slots at the end of a region, which belong to no key
	ways   = 8 // slots in a bin: two cache lines
	roomy  = 4 // a bin with fewer slots in use is good enough
)

// A region is a fixed table of slots for the part of all keys that have its hash. Its
// slots lie in bins; a key lives in one of two, wherever there was room for it:
//
//	bins  │ eve ann ·  ·  ·  ·  ·  · │ bob dan kim lee max ned ·  · │ …
//	        ▲ first choice of zoe          ▲ second choice of zoe
//
// With two choices bins fill up evenly: at 5 keys for 8 slots none of a million keys
// finds both its bins full. Keys mostly live in the first, which is looked at first.
//
// Keys are found without a lock. The lock is held while one moves in, so that it
// cannot move in twice. Who has found a slot and comes to move its tat may find that
// another key has moved in since. It cannot miss that: tat is closed meanwhile, and
// afterwards later than it was when the slot could be had, even if all claims of the
// new key have been cancelled. So a compare-and-swap of the old tat fails.
type region struct {
	slots []slot                   // of all bins, and then spill and fresh
	keys  []atomic.Pointer[string] // of slots, if they are kept; nil: they are not

	mu     sync.Mutex
	swept  int64        // latest tick as of which a key was forgotten
	latest atomic.Int64 // latest reading granted at
	_      [64]byte
}

func (r *region) start(bins int64, exact bool) {
	r.slots = make([]slot, bins*ways+2)
	if exact {
		r.keys = make([]atomic.Pointer[string], bins*ways)
	}
	for _, i := range []int{r.spill(), r.fresh()} {
		r.slots[i].id.Store(shared)
		r.slots[i].tat.Store(neverRead)
	}
	r.swept = neverRead
	r.latest.Store(neverRead)
}

// spill is the slot of all keys that found no room.
func (r *region) spill() int { return len(r.slots) - 2 }

// fresh is a slot that nobody takes from: what a key that has none would find.
func (r *region) fresh() int { return len(r.slots) - 1 }

// bins returns the first slots of the two bins in which a key of hash h may live.
func (r *region) bins(h uint64) (first, second int) {
	n := uint64(len(r.slots) / ways)
	return int((h>>32)*n>>32) * ways, int((h>>8)&math.MaxUint32*n>>32) * ways
}

// find returns the slot of a key; -1: it has none.
func (r *region) find(h uint64, key string) int {
	first, second := r.bins(h)
	for i := first; i < first+ways; i++ {
		if r.slots[i].id.Load() == h && r.is(i, key) {
			return i
		}
	}
	for i := second; i < second+ways; i++ {
		if r.slots[i].id.Load() == h && r.is(i, key) {
			return i
		}
	}
	return -1
}

// is reports whether key may have slot i, by what is kept of keys.
func (r *region) is(i int, key string) bool {
	if r.keys == nil {
		return true
	}
	k := r.keys[i].Load()
	return k != nil && *k == key
}

// holds reports whether slot i is still that of a key.
func (r *region) holds(i int, h uint64, key string) bool {
	id := r.slots[i].id.Load()
	return id == shared || id == h && r.is(i, key)
}

// room returns a slot for a key of hash h: one never used, or one that is full again
// before tick. -1: all are in use.
func (r *region) room(h uint64, tick int64) int {
	first, second := r.bins(h)
	i, n := r.vacant(first, tick)
	if n > ways-roomy {
		return i
	}
	if j, m := r.vacant(second, tick); m > n {
		return j
	}
	return i
}

// vacant returns the first of n slots in a bin that can be had; -1 if n is 0.
func (r *region) vacant(bin int, tick int64) (slot, n int) {
	slot = -1
	for i := bin + ways - 1; i >= bin; i-- {
		if s := &r.slots[i]; s.id.Load() == 0 || s.tat.Load() < tick {
			slot = i
			n++
		}
	}
	return slot, n
}

// moveIn returns the slot of a key, which is given one if it has none; -1: there is
// no room. The bucket is full as of tick now. Others must be so before asOf to be
// forgotten.
func (r *region) moveIn(h uint64, key string, now, asOf int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(h, key); i >= 0 {
		return i
	}
	for {
		i := r.room(h, asOf)
		if i < 0 {
			return -1
		}
		s := &r.slots[i]
		old := s.tat.Load()
		used := s.id.Load() != 0
		if used && (old >= asOf || !s.tat.CompareAndSwap(old, closed)) {
			continue // its key is back
		}
		if used {
			r.swept = max(r.swept, asOf)
		}
		s.tat.Store(closed)
		if r.keys != nil {
			own := strings.Clone(key) // it may be a part of something large
			r.keys[i].Store(&own)
		}
		s.id.Store(h)
		s.tat.Store(max(now, r.swept))
		return i
	}
}

// await returns when the key that is moving in has.
func (r *region) await() {
	r.mu.Lock()
	//lint:ignore SA2001 empty on purpose: moveIn holds it until the key is there
	r.mu.Unlock()
}

// grantedAt notes that a claim was granted at now.
func (r *region) grantedAt(now int64) {
	for old := r.latest.Load(); old < now && !r.latest.CompareAndSwap(old, now); {
		old = r.latest.Load()
	}
}
