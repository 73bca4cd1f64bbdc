package indexheap

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A heapItem is a member of a Heap that stores its index.
type heapItem struct{ rank, pos int }

type heapItemOrder struct{}

func (heapItemOrder) Less(a, b *heapItem) bool    { return a.rank < b.rank }
func (heapItemOrder) SetIndex(m *heapItem, i int) { m.pos = i }

func TestHeap_firstIsTheLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	var p Heap[*heapItem, heapItemOrder]
	var all []*heapItem
	for range 20000 {
		switch i := rng.IntN(max(len(all), 1)); {
		case len(all) == 0 || rng.IntN(3) == 0:
			m := &heapItem{rank: rng.IntN(1000)}
			p.Push(m)
			all = append(all, m)
		case rng.IntN(2) == 0:
			all[i].rank = rng.IntN(1000)
			p.Fix(all[i].pos)
		default:
			m := all[i]
			p.Remove(m.pos)
			require.Equal(t, -1, m.pos)
			if tail := p.Items[p.Len():cap(p.Items)]; len(tail) > 0 {
				require.Nil(t, tail[0], "the memory of a removed member can be freed")
			}
			all = slices.Delete(all, i, i+1)
		}
		require.Equal(t, len(all), p.Len())
		if len(all) > 0 {
			first := slices.MinFunc(all, func(a, b *heapItem) int { return a.rank - b.rank })
			require.Equal(t, first.rank, p.First().rank)
		}
	}
	for i, m := range p.Items {
		require.Equal(t, i, m.pos)
	}
}

func TestHeap_shrinks(t *testing.T) {
	var p Heap[*heapItem, heapItemOrder]
	for i := range 100000 {
		p.Push(&heapItem{rank: i})
	}
	for p.Len() > 0 {
		p.Remove(p.Len() / 2)
	}
	require.LessOrEqual(t, cap(p.Items), 128)
}

// TestHeap_halvesItsCapacity checks when the memory of a heap is reduced: when less than a
// quarter of it is used, unless it is small.
func TestHeap_halvesItsCapacity(t *testing.T) {
	for _, tt := range []struct{ capacity, left, want int }{
		{1024, 257, 1024}, {1024, 256, 1024}, {1024, 255, 512}, {1024, 0, 512},
		{66, 16, 66}, {66, 15, 33}, {65, 15, 32}, {64, 15, 64}, {64, 0, 64},
	} {
		p := Heap[*heapItem, heapItemOrder]{Items: make([]*heapItem, 0, tt.capacity)}
		for i := range tt.left + 1 {
			p.Push(&heapItem{rank: i})
		}
		p.Remove(0)
		require.Equal(t, tt.left, p.Len())
		require.Equal(t, tt.want, cap(p.Items), "%+v", tt)
		for i, m := range p.Items {
			require.Equal(t, i, m.pos, "%+v", tt)
			require.GreaterOrEqual(t, m.rank, p.Items[max(i-1, 0)/2].rank, "%+v: no member is less than its parent", tt)
		}
	}
}

// TestHeap_keepsTheOrderOfAllMembers checks the order of each member with its parent after
// each change, so that First is right after any removals.
func TestHeap_keepsTheOrderOfAllMembers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	var p Heap[*heapItem, heapItemOrder]
	for range 3000 {
		switch n := p.Len(); {
		case n == 0 || rng.IntN(5) < 2:
			p.Push(&heapItem{rank: rng.IntN(50)})
		case rng.IntN(2) == 0:
			i := rng.IntN(n)
			p.Items[i].rank = rng.IntN(50)
			p.Fix(i)
		default:
			p.Remove(rng.IntN(n))
		}
		for i, m := range p.Items {
			if parent := p.Items[max(i-1, 0)/2]; m.pos != i || m.rank < parent.rank {
				t.Fatalf("member %d has the index %d and the rank %d, its parent has the rank %d", i, m.pos, m.rank, parent.rank)
			}
		}
	}
}
