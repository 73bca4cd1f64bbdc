package keyed

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/networks"
	"github.com/heed-go/heed/internal/ticks"
)

// A bucketSlot is the entry of one key in a slotTable: 16 bytes.
type bucketSlot struct {
	id  atomic.Uint64 // hash of the key; 0: unused
	tat atomic.Int64  // see internal/gcra, in ticks; gcra.Closed: a key is being inserted
}

const (
	noKeyID        = 1 // id of slots that belong to no key
	slotsPerBucket = 8 // slots in a bucket: two cache lines
	fewInUse       = 4 // the second bucket is not searched if fewer slots of the first are in use

	shared = -1 // instead of a slot: the bucket that a key without a place shares
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
// Keys are found without a lock, and inserted with it. Between lookup and CAS the slot may have
// been reassigned to another key. The CAS then fails: tat is gcra.Closed during the
// reassignment, and afterwards later than when the slot became free, even if all claims of the
// new key were Unused. An exception is a claim in progress while its key is evicted in use: it
// may be charged to the new key.
type slotTable struct {
	slots []bucketSlot             // of all buckets, followed by empty
	keys  []atomic.Pointer[string] // keys of the slots; nil: only hashes are kept

	mu          sync.Mutex
	lastEvicted int64         // latest tick as of which a key was evicted
	latest      atomic.Int64  // latest Claim.Now with which a claim was granted
	networks    []networks.ID // of the keys of the slots; guarded by mu
	_           [64]byte
}

func (r *slotTable) init(buckets int64, exact bool) {
	r.slots = make([]bucketSlot, buckets*slotsPerBucket+1)
	r.networks = make([]networks.ID, buckets*slotsPerBucket)
	if exact {
		r.keys = make([]atomic.Pointer[string], buckets*slotsPerBucket)
	}
	r.slots[r.empty()].init(ticks.Never)
	r.lastEvicted = ticks.Never
	r.latest.Store(ticks.Never)
}

// init makes s a bucket that belongs to no key, and returns it.
func (s *bucketSlot) init(tat int64) *bucketSlot {
	s.id.Store(noKeyID)
	s.tat.Store(tat)
	return s
}

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

// load returns the tat of s, which is slot i, and whether s is still that of key or belongs to no
// key. It waits for the insertion of a key that is in progress, and then reports false.
func (r *slotTable) load(s *bucketSlot, i int, h uint64, key string) (tat int64, ok bool) {
	if tat = s.tat.Load(); tat == gcra.Closed {
		r.mu.Lock()
		r.mu.Unlock() //nolint:staticcheck // empty on purpose: insert holds it until the key is there
		return tat, false
	}
	id := s.id.Load()
	return tat, id == noKeyID || id == h && r.keyMatches(i, key)
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

// freeSlots returns the number of free slots of a bucket and one of them: an unused one, or else the one
// that became full first, so that keys that return often keep their slots. slot is -1 if n is 0.
func (r *slotTable) freeSlots(bucket int, tick int64) (slot, n int) {
	slot, oldest := -1, tick
	for i := bucket; i < bucket+slotsPerBucket; i++ {
		s := &r.slots[i]
		tat := s.tat.Load()
		if s.id.Load() == 0 {
			tat = math.MinInt64
		}
		if tat < tick {
			n++
			if tat < oldest {
				slot, oldest = i, tat
			}
		}
	}
	return slot, n
}

// A newKey is a key without a slot that makes a claim.
type newKey struct {
	hash     uint64
	key      string
	now      int64 // tick of the claim
	asOf     int64 // keys whose buckets were full before may be evicted
	latest   int64 // the claim is rejected if the bucket of the key starts later than this tick
	network  networks.ID
	networks *networks.Table[bucketSlot] // nil: keys in use are not evicted
}

// start returns the bucket as which that of a starts: that of its network; nil if it is full.
func (a *newKey) start() *bucketSlot {
	if a.networks == nil {
		return nil
	}
	return a.networks.Start(a.network)
}

// isRejected reports whether a claim is rejected because the bucket of a starts as s.
func (a *newKey) isRejected(s *bucketSlot) bool {
	tat := s.tat.Load()
	return tat > a.now && tat > a.latest
}

// insert returns the slot of a, which is assigned if a has none. The bucket of a new key is full
// as of a.now, or starts as that of its network. insert returns shared if there is no slot for
// a, or if the bucket of its network rejects the claim.
func (r *slotTable) insert(a newKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(a.hash, a.key); i >= 0 {
		return i
	}
	start := a.now
	if a.networks != nil {
		a.networks.Arrive(a.network)
	}
	if s := a.start(); s != nil {
		if a.isRejected(s) {
			return shared
		}
		start = max(start, s.tat.Load())
	}
	for {
		i, inUse := r.place(a)
		if i < 0 {
			return shared
		}
		s := &r.slots[i]
		old := s.tat.Load()
		used := s.id.Load() != 0
		if used && (old >= a.asOf && !inUse || !s.tat.CompareAndSwap(old, gcra.Closed)) {
			continue // the key has claimed again
		}
		if used {
			r.lastEvicted = max(r.lastEvicted, a.asOf)
		}
		if id := r.networks[i]; inUse && id != networks.Unknown { // what was taken from the key that loses its place is taken from its network
			ticks.StoreMax(&sharedSlot(a.networks, id).tat, old)
		}
		s.tat.Store(gcra.Closed)
		if r.keys != nil {
			own := strings.Clone(a.key) // it may be a substring of a large string
			r.keys[i].Store(&own)
		}
		if used || a.network != networks.Unknown { // otherwise it is unknown, in memory that need not be touched
			r.networks[i] = a.network
		}
		s.id.Store(a.hash)
		s.tat.Store(max(start, r.lastEvicted))
		return i
	}
}

func (r *slotTable) hasPlace(a newKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := r.place(a)
	return i >= 0
}

// place returns a slot for a: a free one, or else that of a key in use that loses its place
// to a, of those the one nearest to full. It returns -1 if there is none.
func (r *slotTable) place(a newKey) (i int, inUse bool) {
	if i = r.findFree(a.hash, a.asOf); i >= 0 || a.networks == nil {
		return i, false
	}
	first, second := r.buckets(a.hash)
	most, least := 1, int64(math.MaxInt64)
	for _, bucket := range [...]int{first, second} {
		for j := bucket; j < bucket+slotsPerBucket; j++ {
			yield, tat := a.networks.Yield(r.networks[j], a.network), r.slots[j].tat.Load()
			if yield > most || yield == most && tat < least {
				i, most, least = j, yield, tat
			}
		}
	}
	return i, true
}

// sharedSlot returns the bucket that the keys of a network without a place share.
func sharedSlot(n *networks.Table[bucketSlot], id networks.ID) *bucketSlot {
	if s := n.Share(id, nil); s != nil {
		return s
	}
	return n.Share(id, new(bucketSlot).init(ticks.Never))
}
