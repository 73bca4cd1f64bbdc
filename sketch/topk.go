package sketch

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// TopK finds the keys that were added most, with as many counters as it is given. This
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
type TopK struct {
	mu       sync.Mutex
	capacity int
	heap     []*Item // the least count first
	index    map[string]int
}

// An Item is a key that was added often.
type Item struct {
	Key      string
	Count    int64 // what was added to Key, or more
	MaxError int64 // most by which Count is too high
}

// maxItemCount is where a count ends.
const maxItemCount = 1 << 62

// NewTopK returns a Top with so many counters. For the first k keys in the right order
// several times k are needed. It panics if counters is not positive.
func NewTopK(counters int) *TopK {
	if counters <= 0 {
		panic("sketch: NewTopK: it needs at least one counter")
	}
	return &TopK{capacity: counters, index: map[string]int{}}
}

// Add adds n to key and returns its count. It adds nothing if n is not positive.
func (t *TopK) Add(key string, n int64) (count int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = max(n, 0)
	i, known := t.index[key]
	switch {
	case !known && n == 0:
		return t.minCount()
	case !known:
		i = t.assignCounter(key)
	}
	h := t.heap[i]
	h.Count += min(n, maxItemCount-h.Count)
	t.down(i)
	return h.Count
}

// Count returns what was added to key, or more.
func (t *TopK) Count(key string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, known := t.index[key]; known {
		return t.heap[i].Count
	}
	return t.minCount()
}

// First returns the k keys with the highest counts, highest first, or as many as there
// are. Keys with equal counts are in alphabetical order.
func (t *TopK) First(k int) []Item {
	_, all := t.items()
	slices.SortFunc(all, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	return slices.Clip(all[:min(max(k, 0), len(all))])
}

// items returns how many counters there are, and what is on those in use.
func (t *TopK) items() (capacity int, all []Item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = make([]Item, len(t.heap))
	for i, h := range t.heap {
		all[i] = *h
	}
	return t.capacity, all
}

// minCount is what a key without a counter may have had at most.
func (t *TopK) minCount() int64 {
	if len(t.heap) < t.capacity {
		return 0
	}
	return t.heap[0].Count
}

// assignCounter gives key a counter and returns its place.
func (t *TopK) assignCounter(key string) int {
	key = strings.Clone(key) // it may be a part of something large
	if len(t.heap) < t.capacity {
		return t.insert(&Item{Key: key})
	}
	h := t.heap[0]
	delete(t.index, h.Key)
	h.Key, h.MaxError = key, h.Count
	t.index[key] = 0
	return 0
}

func (t *TopK) insert(h *Item) int {
	t.heap = append(t.heap, h)
	t.index[h.Key] = len(t.heap) - 1
	return t.up(len(t.heap) - 1)
}

func (t *TopK) up(i int) int {
	for i > 0 && t.heap[i].Count < t.heap[(i-1)/2].Count {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

func (t *TopK) down(i int) {
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

func (t *TopK) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.index[t.heap[i].Key], t.index[t.heap[j].Key] = i, j
}
