package throttle

// A heapOrder says which of two members of a pile goes first, and tells a member
// where it is.
type heapOrder[T any] interface {
	Less(a, b T) bool
	SetIndex(m T, i int) // i is -1 when m left
}

// An indexHeap is a binary heap whose members know their place in it, so that any of
// them can leave in O(log n).
type indexHeap[T any, O heapOrder[T]] struct {
	Order O
	Items []T
}

// First returns the member that goes before all others. The pile must not be empty.
func (h *indexHeap[T, O]) First() T { return h.Items[0] }

func (h *indexHeap[T, O]) Len() int { return len(h.Items) }

func (h *indexHeap[T, O]) Push(m T) {
	h.Items = append(h.Items, m)
	h.Order.SetIndex(m, len(h.Items)-1)
	h.up(len(h.Items) - 1)
}

// Remove takes out the member at i. It gives memory back when most of it is no
// longer used: a line of 100,000 that gave up must not be paid for ever.
func (h *indexHeap[T, O]) Remove(i int) {
	last := len(h.Items) - 1
	h.swap(i, last)
	h.Order.SetIndex(h.Items[last], -1)
	clear(h.Items[last:])
	h.Items = h.Items[:last]
	if i < last {
		h.Fix(i)
	}
	if c := cap(h.Items); c > 64 && last < c/4 {
		h.Items = append(make([]T, 0, c/2), h.Items...)
	}
}

// Fix moves the member at i to where it belongs now.
func (h *indexHeap[T, O]) Fix(i int) {
	if !h.up(i) {
		h.down(i)
	}
}

func (h *indexHeap[T, O]) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.Order.Less(h.Items[i], h.Items[parent]) {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h *indexHeap[T, O]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.Items) {
			return
		}
		if r := child + 1; r < len(h.Items) && h.Order.Less(h.Items[r], h.Items[child]) {
			child = r
		}
		if !h.Order.Less(h.Items[child], h.Items[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *indexHeap[T, O]) swap(i, j int) {
	h.Items[i], h.Items[j] = h.Items[j], h.Items[i]
	h.Order.SetIndex(h.Items[i], i)
	h.Order.SetIndex(h.Items[j], j)
}
