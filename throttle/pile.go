package throttle

// An order says which of two members of a pile goes first, and tells a member
// where it is.
type order[T any] interface {
	before(a, b T) bool
	moved(m T, i int) // i is -1 when m left
}

// A pile is a binary heap whose members know their place in it, so that any of
// them can leave in O(log n).
type pile[T any, O order[T]] struct {
	order   O
	members []T
}

// first returns the member that goes before all others. The pile must not be empty.
func (p *pile[T, O]) first() T { return p.members[0] }

func (p *pile[T, O]) len() int { return len(p.members) }

func (p *pile[T, O]) push(m T) {
	p.members = append(p.members, m)
	p.order.moved(m, len(p.members)-1)
	p.up(len(p.members) - 1)
}

// remove takes out the member at i. It gives memory back when most of it is no
// longer used: a line of 100,000 that gave up must not be paid for ever.
func (p *pile[T, O]) remove(i int) {
	last := len(p.members) - 1
	p.swap(i, last)
	p.order.moved(p.members[last], -1)
	clear(p.members[last:])
	p.members = p.members[:last]
	if i < last {
		p.fix(i)
	}
	if c := cap(p.members); c > 64 && last < c/4 {
		p.members = append(make([]T, 0, c/2), p.members...)
	}
}

// fix moves the member at i to where it belongs now.
func (p *pile[T, O]) fix(i int) {
	if !p.up(i) {
		p.down(i)
	}
}

func (p *pile[T, O]) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !p.order.before(p.members[i], p.members[parent]) {
			break
		}
		p.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (p *pile[T, O]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(p.members) {
			return
		}
		if r := child + 1; r < len(p.members) && p.order.before(p.members[r], p.members[child]) {
			child = r
		}
		if !p.order.before(p.members[child], p.members[i]) {
			return
		}
		p.swap(i, child)
		i = child
	}
}

func (p *pile[T, O]) swap(i, j int) {
	p.members[i], p.members[j] = p.members[j], p.members[i]
	p.order.moved(p.members[i], i)
	p.order.moved(p.members[j], j)
}
