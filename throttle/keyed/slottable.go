package keyed

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// A bucketSlot is the entry of one key in a slotTable: 16 bytes.
type bucketSlot struct {
	id  atomic.Uint64 // hash of the key; 0: unused
	tat atomic.Int64  // see internal/gcra, in ticks; gcra.Closed: a key is being inserted
}

const (
	overflowID     = 1 // id of the slots at the end of a table, which belong to no key
	slotsPerBucket = 8 // slots in a bucket: two cache lines
	fewInUse       = 4 // the second bucket is not searched if fewer slots of the first are in use
)

// A slotTable is a fixed table of slots for one part of the keys. Its slots form buckets
// of slotsPerBucket; a key is in one of two buckets, whichever had a free slot:
//
//	buckets │ eve ann ·  ·  ·  ·  ·  · │ bob dan kim lee max ned ·  · │ …
//	          ▲ first choice of zoe          ▲ second choice of zoe
//
// With two choices, buckets fill evenly: with 5 keys for 8 slots, none of a million keys
// finds both of its buckets full. Most keys are in the first, which is searched first.
//
// Keys are found without a lock. The lock is held while a key is inserted, so that it is
// not inserted twice. Between lookup and CAS the slot may have been reassigned to another
// key. The CAS then fails: tat is gcra.Closed during the reassignment, and afterwards
// later than it was when the slot became free, even if all claims of the new key have been
// canceled.
type slotTable struct {
	slots []bucketSlot             // of all buckets, followed by overflow and empty
	keys  []atomic.Pointer[string] // keys of the slots; nil: only hashes are kept

	mu          sync.Mutex
	lastEvicted int64        // latest tick as of which a key was evicted
	latest      atomic.Int64 // latest reading at which a claim was granted
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

// overflow returns the slot of all keys for which there was no free slot.
func (r *slotTable) overflow() int { return len(r.slots) - 2 }

// empty returns a slot that is never changed: the state of a key that has no slot.
func (r *slotTable) empty() int { return len(r.slots) - 1 }

// buckets returns the first slots of the two buckets of a key with hash h.
func (r *slotTable) buckets(h uint64) (first, second int) {
	n := uint64(len(r.slots) / slotsPerBucket)
	return int((h>>32)*n>>32) * slotsPerBucket, int((h>>8)&math.MaxUint32*n>>32) * slotsPerBucket
}

// find returns the slot of a key, or -1 if it has none.
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

// keyMatches reports whether slot i can be that of key, as far as keys are kept.
func (r *slotTable) keyMatches(i int, key string) bool {
	if r.keys == nil {
		return true
	}
	k := r.keys[i].Load()
	return k != nil && *k == key
}

// belongsTo reports whether slot i is still that of key.
func (r *slotTable) belongsTo(i int, h uint64, key string) bool {
	id := r.slots[i].id.Load()
	return id == overflowID || id == h && r.keyMatches(i, key)
}

// findFree returns a free slot for a key with hash h: one that is unused, or whose bucket
// is full again before tick. It returns -1 if there is none.
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

// freeSlots returns the first free slot of a bucket and the number of its free slots. slot
// is -1 if n is 0.
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

// insert returns the slot of a key, which is assigned if the key has none, or -1 if there
// is no free slot. The token bucket of a new key is full as of tick now. Other keys are
// evicted only if their token buckets were full before tick asOf.
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
			continue // the key has claimed again
		}
		if used {
			r.lastEvicted = max(r.lastEvicted, asOf)
		}
		s.tat.Store(gcra.Closed)
		if r.keys != nil {
			own := strings.Clone(key) // it may be a substring of a large string
			r.keys[i].Store(&own)
		}
		s.id.Store(h)
		s.tat.Store(max(now, r.lastEvicted))
		return i
	}
}

// waitInserted waits until the insertion of a key is complete.
func (r *slotTable) waitInserted() {
	r.mu.Lock()
	r.mu.Unlock() //nolint:staticcheck // empty on purpose: insert holds it until the key is there
}

// recordGrant records that a claim was granted at now.
func (r *slotTable) recordGrant(now int64) {
	for old := r.latest.Load(); old < now && !r.latest.CompareAndSwap(old, now); {
		old = r.latest.Load()
	}
}
