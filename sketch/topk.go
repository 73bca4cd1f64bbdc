package sketch

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// TopK finds the keys that were added most, with a fixed number of counters. It implements the
// Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
// Top-k Elements in Data Streams, ICDT 2005).
//
// A key without a counter takes over the counter with the lowest count, including that count,
// which is the maximum error of its own count:
//
//	add c   │ a 9 │ b 4 │ d 2 │   becomes   │ a 9 │ b 4 │ c 3, of which 2 may be d's │
//
// Invariant: if N is the sum of all that was added and m is the number of counters, no count is
// too low, no count is too high by more than N/m, and every key to which more than N/m was added
// has a counter. This includes keys that have lost their counter and get another one: the count
// that they take over is at least the count that they had, because the lowest count never
// decreases.
//
// A TopK may be used by several goroutines at the same time; it is guarded by one lock. It keeps
// copies of the keys that have counters, and nothing of other keys. The zero TopK can only be used
// for UnmarshalBinary.
type TopK struct {
	mu       sync.Mutex
	capacity int
	heap     []*Item // the lowest count first
	index    map[string]int
}

// Item is a key that was added often.
type Item struct {
	// Key is the key.
	Key string

	// Count is the sum of what was added to Key, or more.
	Count int64

	// MaxError is the maximum by which Count is too high.
	MaxError int64
}

// maxItemCount is the maximum of a count.
const maxItemCount = 1 << 62

// NewTopK returns a TopK with the given number of counters. To get the first k keys in the right
// order, use several times k counters. NewTopK panics if counters is not positive.
func NewTopK(counters int) *TopK {
	if counters <= 0 {
		panic("sketch: NewTopK: it needs at least one counter")
	}
	return &TopK{capacity: counters, index: map[string]int{}}
}

// Add adds n to the count of key and returns the new count. It adds nothing if n is not positive.
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

// Count returns the count of key, which is never too low.
func (t *TopK) Count(key string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, known := t.index[key]; known {
		return t.heap[i].Count
	}
	return t.minCount()
}

// First returns the k keys with the highest counts in descending order, or all keys if there are
// fewer. Keys with equal counts are in alphabetical order.
func (t *TopK) First(k int) []Item {
	_, all := t.items()
	slices.SortFunc(all, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	return slices.Clip(all[:min(max(k, 0), len(all))])
}

// items returns the number of counters, and the content of those in use.
func (t *TopK) items() (capacity int, all []Item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = make([]Item, len(t.heap))
	for i, h := range t.heap {
		all[i] = *h
	}
	return t.capacity, all
}

// minCount returns the maximum count that a key without a counter may have.
func (t *TopK) minCount() int64 {
	if len(t.heap) < t.capacity {
		return 0
	}
	return t.heap[0].Count
}

// assignCounter assigns a counter to key and returns its index.
func (t *TopK) assignCounter(key string) int {
	key = strings.Clone(key) // it may be a part of a larger string
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
	for parent := (i - 1) / 2; t.heap[i].Count < t.heap[parent].Count; parent = (i - 1) / 2 {
		t.swap(i, parent)
		i = parent
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
