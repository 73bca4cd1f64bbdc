package keyed

import (
	"strings"

	"github.com/heed-go/heed/internal/indexheap"
)

// A keyTable keeps a record per key and finds records that can be evicted without loss, because
// their state equals that of an unused key.
//
// No operation visits all records. They are ordered in a heap by the instant before which
// they cannot be evicted, as known when each was last checked. Claims move that instant
// later, so they need not update the heap: when space is needed, the first record is checked.
// An Unused claim may move the instant earlier; the record then stays longer than necessary.
type keyTable[R tableEntry] struct {
	byKey map[string]R
	heap  indexheap.Heap[R, nextExpiry[R]]
}

// A tableEntry is the record of a key in a keyTable.
type tableEntry interface {
	comparable
	position() *tablePosition
}

type tablePosition struct {
	key         string
	index       int   // in the heap
	evictableAt int64 // the record cannot be evicted before
}

type nextExpiry[R tableEntry] struct{}

func (nextExpiry[R]) Less(a, b R) bool    { return a.position().evictableAt < b.position().evictableAt }
func (nextExpiry[R]) SetIndex(m R, i int) { m.position().index = i }

// maxEvictionChecks is the number of records that are checked when space is needed. A record in
// use is moved to its current position in the heap.
const maxEvictionChecks = 8

func (r *keyTable[R]) len() int { return r.heap.Len() }

// add adds m as the record of a key that has none.
func (r *keyTable[R]) add(m R, key string, now int64) {
	if r.byKey == nil {
		r.byKey = make(map[string]R)
	}
	key = strings.Clone(key) // it may be a substring of a large string
	*m.position() = tablePosition{key: key, evictableAt: now}
	r.byKey[key] = m
	r.heap.Push(m)
}

func (r *keyTable[R]) remove(m R) {
	delete(r.byKey, m.position().key)
	r.heap.Remove(m.position().index)
}

// evict evicts a record that is unused at now. It reports false if it found none.
//
// The function evictableAt returns now if the state of a record equals that of an unused
// key, and otherwise the instant, later than now, at which to check again. It is called
// with the lock that guards the table held: it must not call limiters or hooks.
func (r *keyTable[R]) evict(now int64, evictableAt func(m R, now int64) int64) bool {
	for range min(maxEvictionChecks, r.len()) {
		m := r.heap.First()
		p := m.position()
		if p.evictableAt > now {
			return false
		}
		if p.evictableAt = evictableAt(m, now); p.evictableAt <= now {
			r.remove(m)
			return true
		}
		r.heap.Fix(p.index)
	}
	return false
}
