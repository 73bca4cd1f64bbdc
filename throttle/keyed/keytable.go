package keyed

import (
	"strings"

	"github.com/heed-go/heed/internal/indexheap"
)

// A keyTable keeps a record per key and finds records that can be evicted without loss, because
// their state equals that of an unused key.
//
// They are ordered in a heap by the instant before which they cannot be evicted, so that no
// operation visits all records. An instant that is too early is corrected when space is needed
// and the record is the first; with one that is too late it stays longer than necessary.
type keyTable[R tableEntry] struct {
	byKey map[string]R
	heap  indexheap.Heap[R, nextExpiry[R]]
}

// A tableEntry is the record of a key in a keyTable. It embeds a tablePosition.
type tableEntry interface {
	comparable
	position() *tablePosition
}

type tablePosition struct {
	key         string
	index       int   // in the heap
	evictableAt int64 // the record cannot be evicted before
}

func (p *tablePosition) position() *tablePosition { return p }

type nextExpiry[R tableEntry] struct{}

func (nextExpiry[R]) Less(a, b R) bool    { return a.position().evictableAt < b.position().evictableAt }
func (nextExpiry[R]) SetIndex(m R, i int) { m.position().index = i }

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

func (r *keyTable[R]) setEvictableAt(m R, at int64) {
	m.position().evictableAt = at
	r.heap.Fix(m.position().index)
}
