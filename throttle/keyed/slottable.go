package keyed

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// A bucketSlot is what one key has of a region: 16 bytes.
type bucketSlot struct {
	id  atomic.Uint64 // hash of the key; 0: no key yet
	tat atomic.Int64  // see internal/gcra, in ticks; gcra.Closed: a key is just moving in
}

const (
	overflowID     = 1 // id of the slots at the end of a region, which belong to no key
	slotsPerBucket = 8 // slots in a bin: two cache lines
	fewInUse       = 4 // a bin with fewer slots in use is good enough
)

// A slotTable is a fixed table of slots for the part of all keys that have its hash. Its
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
type slotTable struct {
	slots []bucketSlot             // of all bins, and then spill and fresh
	keys  []atomic.Pointer[string] // of slots, if they are kept; nil: they are not

	mu          sync.Mutex
	lastEvicted int64        // latest tick as of which a key was forgotten
	latest      atomic.Int64 // latest reading granted at
	_           [64]byte
}

func (r *slotTable) init(buckets int64, exact bool) {
	r.slots = make([]bucketSlot, buckets*slotsPerBucket+2)
	if exact {
		r.keys = make([]atomic.Pointer[string], buckets*slotsPerBucket)
	}
	for _, i := range []int{r.overflow(), r.empty()} {
		r.slots[i].id.Store(overflowID)
		r.slots[i].tat.Store(ticks.Never)
	}
	r.lastEvicted = ticks.Never
	r.latest.Store(ticks.Never)
}

// overflow is the slot of all keys that found no room.
func (r *slotTable) overflow() int { return len(r.slots) - 2 }

// empty is a slot that nobody takes from: what a key that has none would find.
func (r *slotTable) empty() int { return len(r.slots) - 1 }

// buckets returns the first slots of the two bins in which a key of hash h may live.
func (r *slotTable) buckets(h uint64) (first, second int) {
	n := uint64(len(r.slots) / slotsPerBucket)
	return int((h>>32)*n>>32) * slotsPerBucket, int((h>>8)&math.MaxUint32*n>>32) * slotsPerBucket
}

// find returns the slot of a key; -1: it has none.
func (r *slotTable) find(h uint64, key string) int {
	first, second := r.buckets(h)
	for i := first; i < first+slotsPerBucket; i++ {
		if r.slots[i].id.Load() == h && r.keyMatches(i, key) {
			return i
		}
	}
	for i := second; i < second+slotsPerBucket; i++ {
		if r.slots[i].id.Load() == h && r.keyMatches(i, key) {
			return i
		}
	}
	return -1
}

// keyMatches reports whether key may have slot i, by what is kept of keys.
func (r *slotTable) keyMatches(i int, key string) bool {
	if r.keys == nil {
		return true
	}
	k := r.keys[i].Load()
	return k != nil && *k == key
}

// belongsTo reports whether slot i is still that of a key.
func (r *slotTable) belongsTo(i int, h uint64, key string) bool {
	id := r.slots[i].id.Load()
	return id == overflowID || id == h && r.keyMatches(i, key)
}

// findFree returns a slot for a key of hash h: one never used, or one that is full again
// before tick. -1: all are in use.
func (r *slotTable) findFree(h uint64, tick int64) int {
	first, second := r.buckets(h)
	i, n := r.freeSlots(first, tick)
	if n > slotsPerBucket-fewInUse {
		return i
	}
	if j, m := r.freeSlots(second, tick); m > n {
		return j
	}
	return i
}

// freeSlots returns the first of n slots in a bin that can be had; -1 if n is 0.
func (r *slotTable) freeSlots(bucket int, tick int64) (slot, n int) {
	slot = -1
	for i := bucket + slotsPerBucket - 1; i >= bucket; i-- {
		if s := &r.slots[i]; s.id.Load() == 0 || s.tat.Load() < tick {
			slot = i
			n++
		}
	}
	return slot, n
}

// insert returns the slot of a key, which is given one if it has none; -1: there is
// no room. The bucket is full as of tick now. Others must be so before reserveTime to be
// forgotten.
func (r *slotTable) insert(h uint64, key string, now, asOf int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(h, key); i >= 0 {
		return i
	}
	for {
		i := r.findFree(h, asOf)
		if i < 0 {
			return -1
		}
		s := &r.slots[i]
		old := s.tat.Load()
		used := s.id.Load() != 0
		if used && (old >= asOf || !s.tat.CompareAndSwap(old, gcra.Closed)) {
			continue // its key is back
		}
		if used {
			r.lastEvicted = max(r.lastEvicted, asOf)
		}
		s.tat.Store(gcra.Closed)
		if r.keys != nil {
			own := strings.Clone(key) // it may be a part of something large
			r.keys[i].Store(&own)
		}
		s.id.Store(h)
		s.tat.Store(max(now, r.lastEvicted))
		return i
	}
}

// waitInserted returns when the key that is moving in has.
func (r *slotTable) waitInserted() {
	r.mu.Lock()
	//lint:ignore SA2001 empty on purpose: insert holds it until the key is there
	r.mu.Unlock()
}

// recordGrant notes that a claim was granted at now.
func (r *slotTable) recordGrant(now int64) {
	for old := r.latest.Load(); old < now && !r.latest.CompareAndSwap(old, now); {
		old = r.latest.Load()
	}
}
