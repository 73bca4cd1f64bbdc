// Package indexheap provides a binary heap whose members store their index, so that any of
// them can be removed or moved in O(log n).
package indexheap

// An Order compares two members of a Heap and stores the index of a member in it.
type Order[T any] interface {
	Less(a, b T) bool
	SetIndex(m T, i int) // i is -1 after m was removed
}

// A Heap is a binary heap. Order must not be changed while the heap has members.
type Heap[T any, O Order[T]] struct {
	Order O
	Items []T
}

// First returns the least member. The heap must not be empty.
func (h *Heap[T, O]) First() T { return h.Items[0] }

// Len returns the number of members.
func (h *Heap[T, O]) Len() int { return len(h.Items) }

// Push adds m.
func (h *Heap[T, O]) Push(m T) {
	h.Items = append(h.Items, m)
	h.Order.SetIndex(m, len(h.Items)-1)
	h.up(len(h.Items) - 1)
}

// Remove removes the member at index i. It halves the capacity when less than a quarter of
// it is used, so that a heap does not keep the memory of its largest size.
func (h *Heap[T, O]) Remove(i int) {
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

// Fix restores the order after the member at index i has changed.
func (h *Heap[T, O]) Fix(i int) {
	if !h.up(i) {
		h.down(i)
	}
}

func (h *Heap[T, O]) up(i int) (moved bool) {
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

func (h *Heap[T, O]) down(i int) {
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

func (h *Heap[T, O]) swap(i, j int) {
	h.Items[i], h.Items[j] = h.Items[j], h.Items[i]
	h.Order.SetIndex(h.Items[i], i)
	h.Order.SetIndex(h.Items[j], j)
}
