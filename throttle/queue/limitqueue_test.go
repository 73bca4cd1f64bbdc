package queue

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A fairQueue is self-clocked fair queueing as Golestani defines it, in exact arithmetic and without
// heaps: the tenant with the lowest finish tag is first, and in it the class with the lowest rank.
// The tag of a tenant that does not wait is kept while it has a class that may return, but not
// more than one claim behind the virtual time.
type fairQueue struct {
	start   map[string]*big.Rat
	waiting map[*queueEntry]bool
	virtual *big.Rat
}

func laterRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func shareOfRat(units, weight int64) *big.Rat { return big.NewRat(max(units, 1), max(weight, 1)) }

func shareOfHead(e *queueEntry) *big.Rat {
	t := e.class.waiters.First().ticket
	return shareOfRat(t.Demands[0].Cost, int64(t.Weight))
}

func (f *fairQueue) firstOf(tenant string) (first *queueEntry) {
	for e := range f.waiting {
		if e.class.key.tenant == tenant && (first == nil || f.rank(e) < f.rank(first)) {
			first = e
		}
	}
	return first
}

func (f *fairQueue) finish(tenant string) *big.Rat {
	return new(big.Rat).Add(f.start[tenant], shareOfHead(f.firstOf(tenant)))
}

// startFor returns the start of a tenant for a claim of the given share.
func (f *fairQueue) startFor(tenant string, share *big.Rat) *big.Rat {
	if f.firstOf(tenant) != nil {
		return f.start[tenant]
	}
	return laterRat(f.start[tenant], new(big.Rat).Sub(f.virtual, share))
}

func (f *fairQueue) rank(e *queueEntry) int64 {
	t := e.class.waiters.First().ticket
	return t.arrival - int64(t.Priority)*int64(10*time.Second)
}

func (f *fairQueue) first() (first *queueEntry) {
	var finish *big.Rat
	for e := range f.waiting {
		tenant := e.class.key.tenant
		if f.firstOf(tenant) != e {
			continue
		}
		if x := f.finish(tenant); first == nil || x.Cmp(finish) < 0 || x.Cmp(finish) == 0 && f.rank(e) < f.rank(first) {
			first, finish = e, x
		}
	}
	return first
}

func (f *fairQueue) insert(e *queueEntry) {
	f.start[e.class.key.tenant] = f.startFor(e.class.key.tenant, shareOfHead(e))
	f.waiting[e] = true
}

func (f *fairQueue) charge(tenant string, share *big.Rat) {
	f.start[tenant] = new(big.Rat).Add(f.startFor(tenant, share), share)
	f.virtual = laterRat(f.virtual, f.start[tenant])
}

// firstIfWaiting returns the first entry if e were waiting too. While its tenant is first, e does not
// change that.
func (f *fairQueue) firstIfWaiting(e *queueEntry) *queueEntry {
	if first := f.first(); f.waiting[e] || first != nil && first.class.key.tenant == e.class.key.tenant {
		if !f.waiting[e] && f.rank(e) < f.rank(first) {
			return e
		}
		return first
	}
	tenant := e.class.key.tenant
	was := f.start[tenant]
	f.insert(e)
	first := f.first()
	delete(f.waiting, e)
	f.start[tenant] = was
	return first
}

// Random events change the classes that wait for a limit. After each, the order agrees with
// fairQueue, a class must yield if it would not be first, and the limit is asked immediately if
// another class or another waiter has become first. Costs are small, or so large that the tags are
// rebased often.
func TestLimitQueue_agreesWithFairQueueing(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 6 // one of each kind
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		q, l := new(Queue), new(holdLimiter)
		q.initOnce.Do(q.init)
		q.now, q.claimTime = 1000, 900
		f := &fairQueue{start: map[string]*big.Rat{}, waiting: map[*queueEntry]bool{}, virtual: new(big.Rat)}
		var entries []*queueEntry
		tenants, scale := []int{5, 40}[seed%2], []int64{1, 1, 1 << 58}[seed%3]
		weight := func() int64 { return []int64{-1, 0, 1, 2, 4, 64}[r.IntN(6)] } // whose shares are exact
		cost := func() int64 { return r.Int64N(4) * scale }
		for i := range tenants + 7 {
			tk := ticket(l, new(slotLimiter))
			if tk.Tenant = fmt.Sprint("t", i%tenants); i%tenants == 0 {
				tk.Tenant = ""
			}
			tk.arrival, tk.Weight, tk.Demands[0].Cost = int64(i), int32(weight()), cost()
			c := q.classOf(tk)
			w := &waiter{ticket: tk, class: c, deadlineIndex: -1}
			c.waiters.Push(w)
			entries = append(entries, c.entryAt(limitKey{l, ""}))
			f.start[tk.Tenant] = f.virtual
		}
		lq := entries[0].limitQueue
		for step := range 400 {
			e, before, next := entries[r.IntN(len(entries))], lq.first(), int64(5000)
			if lq.tenants.Len() == 0 {
				next = never
			}
			q.schedule(lq, next, next != never)
			moved := false // e was first, and its head changes
			what := r.IntN(4)
			switch what {
			case 0:
				q.insert(e)
				if !f.waiting[e] {
					f.insert(e)
				}
			case 1:
				q.remove(e)
				delete(f.waiting, e)
			case 2:
				if scale > 1 && before != nil {
					e = before // as in a Queue: no tenant that waits is further behind than its largest claim
				}
				units, weight := cost(), weight()
				q.charge(e, shareOf(max(units, 1), weight))
				f.charge(e.class.key.tenant, shareOfRat(units, weight))
			case 3:
				head := e.class.waiters.First().ticket
				head.arrival, head.Priority = int64(step+3)*20+r.Int64N(20), int32(r.IntN(3)-1) // no two arrivals are equal
				if moved = before == e; f.waiting[e] {
					head.Weight, head.Demands[0].Cost = int32(weight()), cost()
					q.reorder(e)
				}
			}
			first := f.first()
			require.True(t, first == lq.first(), "seed %d, step %d, event %d", seed, step, what)
			switch {
			case first == nil:
				require.Equal(t, int64(never), lq.retryAt)
			case !moved && first == before:
				require.Equal(t, next, lq.retryAt, "seed %d, step %d, event %d", seed, step, what)
			default:
				require.Equal(t, q.claimTime, lq.retryAt, "seed %d, step %d, event %d", seed, step, what)
				require.False(t, lq.retryExact)
			}
			for range 2 {
				e := entries[r.IntN(len(entries))]
				require.Equal(t, f.firstIfWaiting(e) != e, e.mustYield(), "seed %d, step %d, tenant %s", seed, step, e.class.key.tenant)
			}
			require.Less(t, lq.virtualTime.units, int64(maxTag))
		}
	}
}

// An AllOf of at most maxParts limits counts as these limits, a larger one as one limit.
func TestLimitKey_ofAllOf(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 1, 6: 1} {
		var parts []throttle.Limiter
		for range n {
			parts = append(parts, new(holdLimiter))
		}
		all := throttle.AllOf(parts...)
		m := &throttle.Demand{Limiter: all, Key: "key"}
		require.Equal(t, want, numLimits(m), n)
		for i := range want {
			switch {
			case n > maxParts:
				require.Equal(t, limitKey{all, "key"}, limitKeyOf(m, i))
			default:
				require.Equal(t, limitKey{parts[i], "key"}, limitKeyOf(m, i))
			}
		}
		if n <= maxParts {
			require.Equal(t, limitKey{parts[n-1], "key"}, limitKeyOf(m, n), "a part that does not exist counts as the last one")
		}
	}
}
