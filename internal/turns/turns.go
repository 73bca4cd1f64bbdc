// Package turns makes simulations in a testing/synctest bubble repeatable whose goroutines
// continue at the same instant. The runtime continues them in any order, which differs from run
// to run. A Group lets them continue one after another, in an order that a seed decides.
package turns

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"
)

// A Group is a set of goroutines of one bubble that take turns: one that has slept continues when
// all other goroutines of the bubble are blocked, and after the timers of that instant. Of several
// that have slept until one instant, the seed decides which one is first. What the goroutines wait
// for in other ways, such as a queue, must be repeatable by itself.
type Group struct {
	seed    uint64
	changed chan struct{} // has an element after a change of the fields below

	mu       sync.Mutex // guards the fields below
	sleepers sleepers
	started  int // goroutines
	ended    int // of these
}

// A member is a goroutine of a Group, in its context.
type member struct {
	group  *Group
	number int
	random *rand.Rand // used by the goroutine only
}

type memberKey struct{}

// New returns a Group without goroutines. It must be called in a bubble.
func New(seed uint64) *Group { return &Group{seed: seed, changed: make(chan struct{}, 1)} }

// Run calls f in n goroutines of a new Group, with i from 0 to n-1, and returns when all of them have
// ended. It must be called in a bubble, and no other goroutine of the bubble may call synctest.Wait
// meanwhile.
func Run(ctx context.Context, seed uint64, n int, f func(ctx context.Context, i int)) {
	g := New(seed)
	for i := range n {
		g.Go(ctx, func(ctx context.Context) { f(ctx, i) })
	}
	g.Wait()
}

// Go calls f in a new goroutine of g, which begins in its turn. f must pass its context to Sleep.
func (g *Group) Go(ctx context.Context, f func(ctx context.Context)) {
	g.mu.Lock()
	m := &member{g, g.started, rand.New(rand.NewPCG(g.seed, uint64(g.started)))}
	g.started++
	g.mu.Unlock()
	turn := m.sleep(0)
	go func() {
		<-turn
		defer g.change(func() { g.ended++ }) // also after runtime.Goexit
		f(context.WithValue(ctx, memberKey{}, m))
	}()
}

// Sleep pauses for d, and until it is the turn of the goroutine of ctx. With the context of no
// goroutine of a Group it is time.Sleep.
func Sleep(ctx context.Context, d time.Duration) {
	m, ok := ctx.Value(memberKey{}).(*member)
	if !ok {
		time.Sleep(d)
		return
	}
	<-m.sleep(d)
}

// sleep returns a channel that receives a value when it is the turn of m after d.
func (m *member) sleep(d time.Duration) (turn chan struct{}) {
	s := sleeper{until: time.Now().Add(d), order: m.random.Uint64(), number: m.number, turn: make(chan struct{})}
	m.group.change(func() { heap.Push(&m.group.sleepers, s) })
	return s.turn
}

func (g *Group) change(f func()) {
	g.mu.Lock()
	f()
	g.mu.Unlock()
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// Wait lets the goroutines of g take turns until all of them have ended. No other goroutine of the
// bubble may call synctest.Wait meanwhile.
func (g *Group) Wait() {
	for {
		synctest.Wait()
		turn, wait, done := g.next()
		switch {
		case done:
			return
		case turn != nil:
			turn <- struct{}{}
		case wait > 0:
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-g.changed:
				t.Stop()
			}
		default:
			<-g.changed
		}
	}
}

// next removes the sleeper that is the next one now, and returns its channel. If there is none, wait
// is the time until there is; 0: none sleeps. done reports whether all goroutines have ended.
func (g *Group) next() (turn chan struct{}, wait time.Duration, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sleepers) == 0 {
		return nil, 0, g.started == g.ended
	}
	if wait = time.Until(g.sleepers[0].until); wait > 0 {
		return nil, wait, false
	}
	return heap.Pop(&g.sleepers).(sleeper).turn, 0, false
}

// A sleeper is a goroutine that sleeps.
type sleeper struct {
	until  time.Time
	order  uint64 // random, decides between those with the same time
	number int    // of the goroutine
	turn   chan struct{}
}

// sleepers is a heap, the next one first.
type sleepers []sleeper

func (s sleepers) Len() int      { return len(s) }
func (s sleepers) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *sleepers) Push(x any)   { *s = append(*s, x.(sleeper)) }
func (s sleepers) Less(i, j int) bool {
	return cmp.Or(s[i].until.Compare(s[j].until), cmp.Compare(s[i].order, s[j].order), cmp.Compare(s[i].number, s[j].number)) < 0
}

func (s *sleepers) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
