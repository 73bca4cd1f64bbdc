package keyed

import (
	"strings"

	"github.com/heed-go/heed/internal/indexheap"
)

// A keyTable keeps a record per key and knows which of them could be forgotten, so
// that there is a bound on how many there are. A record whose state equals that of a
// key never seen can be forgotten without loss; others never are.
//
// Nothing ever looks at all records. They stand in a pile by the instant before which
// they cannot be forgotten, as far as was known when each was last looked at. Claims
// move that instant later, so the pile need not hear of them: only the first is looked
// at, when somebody needs its room. A cancel may move it earlier; then the record stays
// for longer than it must.
type keyTable[R tableEntry] struct {
	byKey map[string]R
	heap  indexheap.Heap[R, nextExpiry[R]]
}

// A tableEntry is what a roster keeps for a key.
type tableEntry interface {
	comparable
	position() *tablePosition
}

// A tablePosition is where a record stands in its roster.
type tablePosition struct {
	key         string
	index       int   // in the pile
	evictableAt int64 // it cannot be forgotten before
}

type nextExpiry[R tableEntry] struct{}

func (nextExpiry[R]) Less(a, b R) bool    { return a.position().evictableAt < b.position().evictableAt }
func (nextExpiry[R]) SetIndex(m R, i int) { m.position().index = i }

// maxEvictionChecks is how many records are looked at when room is needed. Each look that finds
// one in use moves it to where it belongs, so that looks are not made in vain.
const maxEvictionChecks = 8

func (r *keyTable[R]) len() int { return r.heap.Len() }

// add keeps m under a key that has no record.
func (r *keyTable[R]) add(m R, key string, now int64) {
	if r.byKey == nil {
		r.byKey = make(map[string]R)
	}
	key = strings.Clone(key) // it may be a part of something large
	*m.position() = tablePosition{key: key, evictableAt: now}
	r.byKey[key] = m
	r.heap.Push(m)
}

// remove removes m.
func (r *keyTable[R]) remove(m R) {
	delete(r.byKey, m.position().key)
	r.heap.Remove(m.position().index)
}

// evict forgets a record that is unused by now. It reports false if it found none.
//
// The func unused returns now if the state of a record equals that of a key never seen,
// and otherwise the instant, later than now, at which to look again. It is called under
// the lock of the roster: it must not call limiters or hooks.
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
