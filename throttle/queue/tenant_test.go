package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A tenantEvent is an event of a history: a call of a tenant begins to wait, is granted, or leaves.
type tenantEvent struct {
	tenant string
	joins  int   // 1, or -1; 0: a grant without a wait
	share  int64 // granted units divided by the weight, times sharesPer
}

const sharesPer = 4 * 3 * 5 * 7 // divisible by all weights

// A tenantHistory runs calls of several tenants and records what happens in the order in which the
// Queue decides.
type tenantHistory struct {
	q       *Queue
	limiter throttle.Limiter

	mu      sync.Mutex
	events  []tenantEvent
	largest map[string]int64 // share of a call of each tenant
}

func (h *tenantHistory) record(e tenantEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// A grantRecorder grants all claims, and calls granted for each.
type grantRecorder struct {
	throttle.Limiter
	granted func()
}

func (g *grantRecorder) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if !c.DryRun {
		g.granted()
	}
	return throttle.Decision{OK: true, At: c.Now}, nil
}

// Traits implements throttle.Limiter.
func (l *grantRecorder) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

// call makes a call, which leaves after the given time.
func (h *tenantHistory) call(ctx context.Context, wg *sync.WaitGroup, tk *Ticket, cost int64, leaves time.Duration) {
	share := cost * sharesPer / max(int64(tk.Weight), 1)
	h.largest[tk.Tenant] = max(h.largest[tk.Tenant], share)
	var mu sync.Mutex
	joined, granted := 0, false
	tk.Add(throttle.Demand{Limiter: h.limiter, Cost: cost})
	tk.Add(throttle.Demand{Limiter: &grantRecorder{Limiter: throttle.AllowAll, granted: func() {
		mu.Lock()
		defer mu.Unlock()
		granted = true
		h.record(tenantEvent{tk.Tenant, -joined, share})
	}}})
	wg.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(leaves, cancel).Stop()
		defer cancel()
		if h.q.Wait(ctx, tk) != nil {
			h.record(tenantEvent{tk.Tenant, -1, 0})
		}
	})
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	if !granted {
		joined = 1
		h.record(tenantEvent{tk.Tenant, 1, 0})
	}
}

// mostUnfair returns how much more the difference between two tenants changes while both wait than
// their largest shares together, in the worst case.
func (h *tenantHistory) mostUnfair() (most int64, pair string) {
	most = math.MinInt64
	for a := range h.largest {
		for b := range h.largest {
			if a >= b {
				continue
			}
			var waitingA, waitingB int
			var diff, low, high int64
			for _, e := range h.events {
				together := waitingA > 0 && waitingB > 0
				switch e.tenant {
				case a:
					diff += e.share
					waitingA += e.joins
				case b:
					diff -= e.share
					waitingB += e.joins
				default:
					continue
				}
				if !together {
					low, high = diff, diff
				}
				low, high = min(low, diff), max(high, diff)
				if x := high - low - h.largest[a] - h.largest[b]; x > most {
					most, pair = x, a+" and "+b
				}
			}
		}
	}
	return most, pair
}

// In random histories, two tenants that wait during the same time get the same number of units,
// divided by their weights, up to the largest claim of each. Calls have random costs, weights and
// priorities, and leave at random times. Half of them are of tenants whose names are used once.
func TestQueue_tenantsDifferByOneClaimEach(t *testing.T) {
	grants, worst, seeds := 0, int64(math.MinInt64), uint64(1000)
	if testing.Short() {
		seeds = 80
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			most := 1 + r.Int64N(30)
			h := &tenantHistory{
				q: new(Queue), largest: map[string]int64{},
				limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1000, Per: time.Second, Burst: most}),
			}
			var wg sync.WaitGroup
			weights := [3]int32{1 + r.Int32N(7), 1 + r.Int32N(7), 1 + r.Int32N(7)}
			invented := 0
			for range 60 {
				time.Sleep(time.Duration(r.Int64N(most)) * time.Millisecond)
				tk := &Ticket{Priority: int32(r.IntN(3))}
				switch i := r.IntN(6); {
				case i < len(weights):
					tk.Tenant, tk.Weight = []string{"", "a", "b"}[i], weights[i]
					if i == 2 {
						tk.Weight = []int32{1, 2, 3, 5, 7}[r.IntN(5)]
					}
				default:
					tk.Tenant, tk.Weight = fmt.Sprint("new ", invented), []int32{1, 2, 3, 5, 7}[r.IntN(5)]
					invented++
				}
				leaves := time.Hour
				if r.IntN(4) == 0 {
					leaves = time.Duration(1+r.Int64N(500))*time.Millisecond + time.Microsecond
				}
				h.call(t.Context(), &wg, tk, 1+r.Int64N(most), leaves)
			}
			wg.Wait()
			requireEmpty(t, h.q)
			x, pair := h.mostUnfair()
			require.LessOrEqual(t, x, int64(0), "seed %d: %s", seed, pair)
			grants, worst = grants+len(h.events), max(worst, x)
		})
	}
	t.Logf("%d events; the worst pair is %.3f units below the bound", grants, float64(-worst)/sharesPer)
}

// A worker takes units of limits until ctx ends, and counts its grants and its longest wait. The names of its
// tenants are those that tenant returns.
type worker struct {
	grants  atomic.Int64
	longest time.Duration
}

func (w *worker) run(ctx context.Context, q *Queue, tenant func() string, ls ...throttle.Limiter) {
	for ctx.Err() == nil {
		start, tk := time.Now(), ticket(ls...)
		tk.Tenant = tenant()
		err := q.Wait(ctx, tk)
		w.longest = max(w.longest, time.Since(start))
		if err == nil {
			w.grants.Add(1)
			q.Report(ctx, tk, throttle.Feedback{})
		}
	}
}

// names returns a function that returns new names, or always the same.
func names(prefix string, invented bool) func() string {
	n := 0
	return func() string {
		if n++; invented {
			return fmt.Sprint(prefix, n)
		}
		return prefix
	}
}

// A tenant gets its share beside callers that use a new name for each call: as much as each of the
// names that wait at the same time. Nothing is kept of names that do not wait.
func TestQueue_inventedTenantsDoNotStarveOthers(t *testing.T) {
	minutes := 5
	if testing.Short() {
		minutes = 1
	}
	for _, callers := range []int{1, 2, 20} {
		for _, invented := range []bool{false, true} {
			if testing.Short() && callers == 2 {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				q, l := new(Queue), bucket(10*time.Millisecond, 1)
				ctx, cancel := context.WithCancel(t.Context()) // without a deadline, which would reject calls early
				time.AfterFunc(time.Duration(minutes)*time.Minute, cancel)
				var wg sync.WaitGroup
				var regular worker
				others := make([]worker, callers)
				for i := range others {
					prefix := "the others"
					if invented {
						prefix = fmt.Sprint(i, "-")
					}
					wg.Go(func() { others[i].run(ctx, q, names(prefix, invented), l) })
				}
				wg.Go(func() { regular.run(ctx, q, names("regular", false), l) })
				for range 20 * minutes {
					time.Sleep(2999 * time.Millisecond)
					synctest.Wait()
					requireConsistent(t, q) // counts the names that are kept
				}
				wg.Wait()
				tenants := 2
				if invented {
					tenants = 1 + callers
				}
				require.InEpsilon(t, 6000*minutes/tenants, regular.grants.Load(), .01, "%d callers, invented names %v", callers, invented)
				require.LessOrEqual(t, regular.longest, time.Duration(tenants+1)*10*time.Millisecond)
				requireEmpty(t, q)
			})
		}
	}
}

// A tenant that needs two busy limits gets units of both beside callers with new names at each.
func TestQueue_inventedTenantsDoNotStarveTicketsForTwoLimits(t *testing.T) {
	minutes := 5
	if testing.Short() {
		minutes = 2
	}
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q := new(Queue)
		a := wrap(bucket(100*time.Millisecond, 1))
		time.Sleep(50 * time.Millisecond) // so that both never open at the same instant
		b := wrap(bucket(100*time.Millisecond, 1))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(minutes)*time.Minute, cancel)
		var wg sync.WaitGroup
		var both, alone worker
		others := make([]worker, 10)
		for i := range others {
			l := []throttle.Limiter{a, b}[i%2]
			wg.Go(func() { others[i].run(ctx, q, names(fmt.Sprint(i, "-"), true), l) })
		}
		wg.Go(func() { both.run(ctx, q, names("both", false), a, b) })
		wg.Go(func() { alone.run(ctx, q, names("alone", false), a) })
		wg.Wait()
		t.Logf("both %d, the longest wait %v; alone %d", both.grants.Load(), both.longest, alone.grants.Load())
		require.Greater(t, both.grants.Load(), int64(600*minutes/10/2), "half of a share at least")
		require.Greater(t, alone.grants.Load(), int64(600*minutes/10))
		require.LessOrEqual(t, both.longest, 5*time.Second)
		requireEmpty(t, q)
	})
}

// A tenant whose calls wait long for another limit has earned one claim of the limits that they do not
// wait for meanwhile, and no more.
func TestQueue_waitingElsewhereEarnsNoUnits(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, a, hold := new(Queue), wrap(bucket(100*time.Millisecond, 1)), &holdLimiter{until: time.Now().Add(time.Minute)}
		b := wrap(hold)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var regular worker
		held := make([]worker, 500)
		wg.Go(func() { regular.run(ctx, q, names("regular", false), a) })
		for i := range held {
			wg.Go(func() { held[i].run(ctx, q, names("held", false), a, b) })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before := regular.grants.Load()
		time.Sleep(20 * time.Second)
		cancel()
		wg.Wait()
		require.InDelta(t, 600, before, 2, "while the others are held")
		require.InDelta(t, 100, regular.grants.Load()-before, 2)
		require.LessOrEqual(t, regular.longest, 400*time.Millisecond)
		requireEmpty(t, q)
	})
}

// Shares stay even after more units than an int64 counts.
func TestQueue_tenantsShareEvenlyAfterManyUnits(t *testing.T) {
	seconds := 10
	if testing.Short() {
		seconds = 4
	}
	for _, cost := range []int64{1, 1 << 45, 1 << 60, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			q, slots := new(Queue), &slotLimiter{free: 1}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			var mu sync.Mutex
			grants := map[string]int{}
			for tenant, callers := range map[string]int{"many": 9, "few": 2} {
				for range callers {
					wg.Go(func() {
						for {
							tk := &Ticket{Tenant: tenant}
							tk.Add(throttle.Demand{Limiter: slots, Cost: cost})
							if q.Wait(ctx, tk) != nil {
								return
							}
							time.Sleep(time.Millisecond)
							mu.Lock()
							grants[tenant]++
							mu.Unlock()
							q.Report(t.Context(), tk, throttle.Feedback{})
						}
					})
				}
			}
			wg.Wait()
			require.InDelta(t, grants["many"], grants["few"], 3, "cost %d", cost)
			require.Greater(t, grants["many"], 490*seconds)
			requireEmpty(t, q)
		})
	}
}

// With an Aging of throttle.Forever a higher priority always goes first, whatever the priorities, and
// with one of ten years within a day.
func TestQueue_strictPriority(t *testing.T) {
	for _, aging := range []time.Duration{throttle.Forever, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q, s, d := &Queue{Aging: aging}, &slotLimiter{}, newEventLog()
			var wg sync.WaitGroup
			var want []string
			for _, p := range []int32{-2, math.MinInt32, -1, 0, 1, 30, math.MaxInt32, 2, 3} {
				wg.Go(func() {
					tk := ticket(s)
					tk.Priority = p
					if assert.NoError(t, q.Wait(t.Context(), tk)) {
						d.record(fmt.Sprint(p))
					}
				})
				synctest.Wait()
				time.Sleep(time.Hour)
			}
			for _, p := range []int32{math.MaxInt32, 30, 3, 2, 1, 0, -1, -2, math.MinInt32} {
				want = append(want, fmt.Sprint(p))
				s.end()
				q.Wake()
				synctest.Wait()
			}
			wg.Wait()
			require.Equal(t, want, d.order)
			requireEmpty(t, q)
		})
	}
}
