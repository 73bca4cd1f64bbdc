package throttle

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mark is a member of a pile that knows its place.
type mark struct{ rank, pos int }

type byRank struct{}

func (byRank) before(a, b *mark) bool { return a.rank < b.rank }
func (byRank) moved(m *mark, i int)   { m.pos = i }

func TestPile_keepsTheFirstInFront(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	var p pile[*mark, byRank]
	var all []*mark
	for range 20000 {
		switch i := rng.IntN(max(len(all), 1)); {
		case len(all) == 0 || rng.IntN(3) == 0:
			m := &mark{rank: rng.IntN(1000)}
			p.push(m)
			all = append(all, m)
		case rng.IntN(2) == 0:
			all[i].rank = rng.IntN(1000)
			p.fix(all[i].pos)
		default:
			m := all[i]
			p.remove(m.pos)
			require.Equal(t, -1, m.pos)
			all = slices.Delete(all, i, i+1)
		}
		require.Equal(t, len(all), p.len())
		if len(all) > 0 {
			first := slices.MinFunc(all, func(a, b *mark) int { return a.rank - b.rank })
			require.Equal(t, first.rank, p.first().rank)
		}
	}
	for i, m := range p.members {
		require.Equal(t, i, m.pos)
	}
}

func TestPile_givesMemoryBack(t *testing.T) {
	var p pile[*mark, byRank]
	for i := range 100000 {
		p.push(&mark{rank: i})
	}
	for p.len() > 0 {
		p.remove(p.len() / 2)
	}
	require.LessOrEqual(t, cap(p.members), 128)
}
