package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A fairQueue is start-time fair queueing as Goyal, Vin and Cheng define it, without heaps:
// the tenant with the lowest usage is first, and in it the class with the lowest rank.
type fairQueue struct {
	usage   map[string]int64
	waiting map[*queueEntry]bool
	last    int64
}

func (f *fairQueue) waits(tenant string) bool {
	for e := range f.waiting {
		if e.class.key.tenant == tenant {
			return true
		}
	}
	return false
}

// usageOf returns the usage of a tenant while it waits.
func (f *fairQueue) usageOf(tenant string) int64 {
	if f.waits(tenant) {
		return f.usage[tenant]
	}
	base := f.last
	if e := f.first(); e != nil {
		base = max(base, f.usage[e.class.key.tenant])
	}
	return max(base, f.usage[tenant])
}

func (f *fairQueue) less(a, b *queueEntry) bool {
	if x, y := f.usage[a.class.key.tenant], f.usage[b.class.key.tenant]; x != y {
		return x < y
	}
	return f.rank(a) < f.rank(b)
}

func (f *fairQueue) rank(e *queueEntry) int64 {
	t := e.class.waiters.First().ticket
	return t.arrival - int64(t.Priority)*int64(10*time.Second)
}

func (f *fairQueue) first() (first *queueEntry) {
	for e := range f.waiting {
		if first == nil || f.less(e, first) {
			first = e
		}
	}
	return first
}

func (f *fairQueue) enqueue(e *queueEntry) {
	f.usage[e.class.key.tenant] = f.usageOf(e.class.key.tenant)
	f.waiting[e] = true
}

func (f *fairQueue) charge(tenant string, units, weight int64) {
	u := f.usageOf(tenant)
	f.last = max(f.last, u)
	f.usage[tenant] = u + max(max(units, 1)<<16/max(weight, 1), 1)
}

// firstIfWaiting returns the first entry if e were waiting too.
func (f *fairQueue) firstIfWaiting(e *queueEntry) *queueEntry {
	if f.waiting[e] {
		return f.first()
	}
	tenant := e.class.key.tenant
	was := f.usage[tenant]
	f.enqueue(e)
	first := f.first()
	delete(f.waiting, e)
	f.usage[tenant] = was
	return first
}

// Random events change the classes that wait for a limit. After each, the order agrees with
// fairQueue, a class must yield if it would not be first, and the limit is asked immediately if
// another class or another waiter has become first.
func TestLimitQueue_agreesWithFairQueueing(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		q, l := new(Queue), new(holdLimiter)
		q.initOnce.Do(q.init)
		q.now, q.claimTime = 1000, 900
		f := &fairQueue{usage: map[string]int64{}, waiting: map[*queueEntry]bool{}}
		var entries []*queueEntry
		tenants := []int{5, 40}[seed%2]
		for i := range tenants + 7 {
			tk := ticket(l, new(slotLimiter))
			if tk.Tenant = fmt.Sprint("t", i%tenants); i%tenants == 0 {
				tk.Tenant = ""
			}
			tk.arrival = int64(i)
			c := q.classOf(tk)
			w := &waiter{ticket: tk, class: c, deadlineIndex: -1}
			c.waiters.Push(w)
			entries = append(entries, c.entryAt(limitKey{l, ""}))
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
				e.enqueue()
				if !f.waiting[e] {
					f.enqueue(e)
				}
			case 1:
				q.dequeue(e)
				delete(f.waiting, e)
			case 2:
				units, weight := r.Int64N(4), r.Int64N(5)-1
				q.charge(e, units, weight)
				f.charge(e.class.key.tenant, units, weight)
			case 3:
				head := e.class.waiters.First().ticket
				head.arrival, head.Priority = int64(step+3)*20+r.Int64N(20), int32(r.IntN(3)-1) // no two arrivals are equal
				if moved = before == e; f.waiting[e] {
					q.reorder(e)
				}
			}
			first := f.first()
			require.True(t, first == lq.first(), "seed %d, step %d, event %d", seed, step, what)
			switch {
			case first == nil:
				require.Equal(t, int64(never), lq.retryAt)
			case what != 0 && (moved || first != before):
				require.Equal(t, q.claimTime, lq.retryAt, "seed %d, step %d, event %d", seed, step, what)
				require.False(t, lq.retryExact)
			default:
				require.Equal(t, next, lq.retryAt, "seed %d, step %d, event %d", seed, step, what)
			}
			for range 2 {
				e := entries[r.IntN(len(entries))]
				tenant := e.class.key.tenant
				require.Equal(t, f.usageOf(tenant), lq.usageToWait(lq.tenant(tenant)), "seed %d, step %d, tenant %s", seed, step, tenant)
				require.Equal(t, f.firstIfWaiting(e) != e, e.mustYield(), "seed %d, step %d, tenant %s", seed, step, tenant)
			}
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

// TestLimitQueue_forgetsIdleTenants checks that the memory of a limitQueue depends on the number
// of tenants that wait or have used more than a new one, and not on how many there were.
func TestLimitQueue_forgetsIdleTenants(t *testing.T) {
	for _, busy := range []int{0, 1, 20, 100} {
		q := new(Queue)
		q.initOnce.Do(q.init)
		lq := q.limitQueueFor(limitKey{new(holdLimiter), ""})
		for i := range busy {
			lq.addTenant(fmt.Sprint("busy", i)).usage = int64(1 + i)
		}
		for i := range 10_000 {
			lq.addTenant(fmt.Sprint("idle", i))
			require.LessOrEqual(t, len(lq.byTenant), max(16, 2*busy), "%d of which are busy", busy)
		}
		for i := range busy {
			require.EqualValues(t, 1+i, lq.byTenant[fmt.Sprint("busy", i)].usage)
		}
	}
}
