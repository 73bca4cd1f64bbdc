package sketch

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Top finds the keys that were added most, with as many counters as it is given. This
// is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
// Top-k Elements in Data Streams, ICDT 2005).
//
// A key that has no counter takes over the one with the least count, and what is on
// it: that much its count may be too high.
//
//	add c   │ a 9 │ b 4 │ d 2 │   becomes   │ a 9 │ b 4 │ c 3, of which 2 may be d's │
//
// Invariant: with N added in all and m counters, no count is too low, none is more
// than N/m too high, and every key to which more than N/m was added has a counter.
//
// The odd case is a key that comes back after it lost its counter: what it had is
// covered by what it takes over, since that was the least count then and none has
// become less.
//
// A Top may be used by many goroutines at once; they take turns at a lock. It keeps
// copies of the keys that have counters, and nothing of others. The zero Top is good for
// UnmarshalBinary only.
type Top struct {
	mu    sync.Mutex
	room  int
	heap  []*Hit // the least count first
	place map[string]int
}

// A Hit is a key that was added often.
type Hit struct {
	Key   string
	Count int64 // what was added to Key, or more
	Over  int64 // most by which Count is too high
}

// mostHits is where a count ends.
const mostHits = 1 << 62

// NewTop returns a Top with so many counters. For the first k keys in the right order
// several times k are needed. It panics if counters is not positive.
func NewTop(counters int) *Top {
	if counters <= 0 {
		panic("sketch: NewTop: it needs at least one counter")
	}
	return &Top{room: counters, place: map[string]int{}}
}

// Add adds n to key and returns its count. It adds nothing if n is not positive.
func (t *Top) Add(key string, n int64) (count int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = max(n, 0)
	i, known := t.place[key]
	switch {
	case !known && n == 0:
		return t.leastCount()
	case !known:
		i = t.admit(key)
	}
	h := t.heap[i]
	h.Count += min(n, mostHits-h.Count)
	t.down(i)
	return h.Count
}

// Count returns what was added to key, or more.
func (t *Top) Count(key string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, known := t.place[key]; known {
		return t.heap[i].Count
	}
	return t.leastCount()
}

// First returns the k keys with the highest counts, highest first, or as many as there
// are. Keys with equal counts are in alphabetical order.
func (t *Top) First(k int) []Hit {
	_, all := t.hits()
	slices.SortFunc(all, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	return slices.Clip(all[:min(max(k, 0), len(all))])
}

// hits returns how many counters there are, and what is on those in use.
func (t *Top) hits() (room int, all []Hit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = make([]Hit, len(t.heap))
	for i, h := range t.heap {
		all[i] = *h
	}
	return t.room, all
}

// leastCount is what a key without a counter may have had at most.
func (t *Top) leastCount() int64 {
	if len(t.heap) < t.room {
		return 0
	}
	return t.heap[0].Count
}

// admit gives key a counter and returns its place.
func (t *Top) admit(key string) int {
	key = strings.Clone(key) // it may be a part of something large
	if len(t.heap) < t.room {
		return t.insert(&Hit{Key: key})
	}
	h := t.heap[0]
	delete(t.place, h.Key)
	h.Key, h.Over = key, h.Count
	t.place[key] = 0
	return 0
}

func (t *Top) insert(h *Hit) int {
	t.heap = append(t.heap, h)
	t.place[h.Key] = len(t.heap) - 1
	return t.up(len(t.heap) - 1)
}

func (t *Top) up(i int) int {
	for i > 0 && t.heap[i].Count < t.heap[(i-1)/2].Count {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (t *Top) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return
		}
		if r := child + 1; r < len(t.heap) && t.heap[r].Count < t.heap[child].Count {
			child = r
		}
		if t.heap[i].Count <= t.heap[child].Count {
			return
		}
		t.swap(i, child)
		i = child
	}
}

func (t *Top) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.place[t.heap[i].Key], t.place[t.heap[j].Key] = i, j
}
