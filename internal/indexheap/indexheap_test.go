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
