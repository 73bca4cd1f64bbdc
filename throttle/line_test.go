package throttle

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flood keeps n callers asking for what next returns until ctx ends.
func flood(ctx context.Context, wg *sync.WaitGroup, w *Waiter, n int, next func() *Ticket, granted func()) {
	for range n {
		wg.Go(func() {
			for w.Wait(ctx, next()) == nil {
				granted()
			}
		})
	}
}

func TestWaiter_whoNeedsTwoBusyLimitsIsNotStarved(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w := new(Waiter)
		a := as(bucket(100*time.Millisecond, 1))
		time.Sleep(50 * time.Millisecond) // so that both are never open at one instant
		b := as(bucket(100*time.Millisecond, 1))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var n [2]int
		flood(ctx, &wg, w, 5, func() *Ticket { return ticket(a) }, func() { n[0]++ })
		time.Sleep(50 * time.Millisecond)
		flood(ctx, &wg, w, 5, func() *Ticket { return ticket(b) }, func() { n[1]++ })
		time.Sleep(time.Second)
		start := time.Now()
		for range 10 {
			came := time.Now()
			require.NoError(t, w.Wait(ctx, ticket(a, b)))
			require.LessOrEqual(t, time.Since(came), 2*time.Second)
		}
		took := time.Since(start)
		stop()
		wg.Wait()
		most := int((took + 1100*time.Millisecond) / (100 * time.Millisecond))
		require.Greater(t, n[0]+n[1], most, "the others go on meanwhile, at more than half of the pace (%v)", n)
		idle(t, w)
	})
}

func TestWaiter_largeClaimIsNotStarvedBySmallOnes(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l := new(Waiter), as(bucket(100*time.Millisecond, 10))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, w, 10, func() *Ticket { return ticket(l) }, func() {})
		time.Sleep(10*time.Second + 5*time.Millisecond)
		start := time.Now()
		wg.Go(func() {
			for ctx.Err() == nil { // each finds a unit, in a line of its own
				time.Sleep(100 * time.Millisecond)
				wg.Go(func() { w.Wait(ctx, ticket(as(bucket(1, 1)), l)) })
			}
		})
		require.NoError(t, w.Wait(ctx, &Ticket{Demands: [MaxDemands]Demand{{Limiter: l, Cost: 10}}}))
		require.LessOrEqual(t, time.Since(start), 2*time.Second) // 10 before it, and its own 10
		stop()
		wg.Wait()
	})
}

func TestWaiter_priorityGoesFirstButAges(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, l, d := new(Waiter), as(bucket(100*time.Millisecond, 1)), newDiary()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, w, 5, func() *Ticket {
			tk := ticket(l)
			tk.Priority = 2
			return tk
		}, func() { d.note("high") })
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				assert.NoError(t, w.Wait(ctx, ticket(l)))
				d.note("low")
			})
			synctest.Wait()
		}
		time.Sleep(30 * time.Second)
		stop()
		wg.Wait()
		bound := 2*10*time.Second + 8*100*time.Millisecond // 2 steps of Ageing, and who was in line by then
		require.Len(t, d.notes["low"], 3)
		require.Greater(t, d.notes["low"][0], 20*time.Second)
		require.LessOrEqual(t, d.last("low"), bound)
	})
}

func TestWaiter_tenantsShareByWeight(t *testing.T) {
	for name, tt := range map[string]struct {
		callers []int
		weights []int
		costs   []int64
	}{
		"equal":               {callers: []int{1, 2, 10, 50}, weights: []int{0, 0, 1, 1}, costs: []int64{1, 1, 1, 1}},
		"weighted":            {callers: []int{3, 3, 3}, weights: []int{1, 2, 4}, costs: []int64{1, 1, 1}},
		"by units, not calls": {callers: []int{3, 3}, weights: []int{1, 1}, costs: []int64{1, 5}},
	} {
		everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
			w, l := new(Waiter), as(bucket(10*time.Millisecond, 5))
			own := as(Unlimited)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var wg sync.WaitGroup
			var mu sync.Mutex
			got := make([]float64, len(tt.callers))
			for i, n := range tt.callers {
				flood(ctx, &wg, w, n, func() *Ticket {
					tk := &Ticket{Tenant: fmt.Sprint("t", i), Weight: int32(tt.weights[i]), Priority: int32(i)}
					tk.Add(Demand{Limiter: l, Cost: tt.costs[i]})
					tk.Add(Demand{Limiter: own, Key: tk.Tenant})
					return tk
				}, func() {
					mu.Lock()
					got[i] += float64(tt.costs[i]) / math.Max(float64(tt.weights[i]), 1)
					mu.Unlock()
				})
			}
			wg.Wait()
			var sum, squares float64
			for _, x := range got {
				sum, squares = sum+x, squares+x*x
			}
			require.GreaterOrEqual(t, sum*sum/squares/float64(len(got)), 0.98, "%s: Jain index of %v", name, got)
			idle(t, w)
		})
	}
}

func TestWaiter_tenantsThatCameAndWentAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := new(Waiter), bucket(time.Millisecond, 1)
		var wg sync.WaitGroup
		stays := 0
		flood(t.Context(), &wg, w, 1, func() *Ticket { return &Ticket{Tenant: "stays", Demands: ticket(l).Demands} }, func() { stays++ })
		most := 0
		go func() {
			for i := range 10000 {
				assert.NoError(t, w.Wait(t.Context(), &Ticket{Tenant: fmt.Sprint(i), Demands: ticket(l).Demands}))
			}
			w.mu.Lock()
			for _, g := range w.gates {
				most = max(most, len(g.shares))
			}
			w.mu.Unlock()
			w.Close()
		}()
		wg.Wait()
		require.Less(t, most, 100)
		require.Greater(t, stays, 4900, "new tenants do not starve one that stays")
		idle(t, w)
	})
}

func TestWaiter_fullLineSaysHowLongItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := &Waiter{MaxLine: 3}, bucket(time.Second, 1)
		retry := ticket(l)
		require.NoError(t, w.Wait(t.Context(), retry))
		w.Observe(t.Context(), retry, Feedback{Outcome: Throttled})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { assert.NoError(t, w.Wait(t.Context(), ticket(l))) })
		}
		synctest.Wait()
		err := w.Wait(t.Context(), ticket(l))
		require.ErrorIs(t, err, ErrRefused)
		require.Equal(t, &LineError{Waiting: 3, MaxLine: 3}, err)
		require.ErrorContains(t, err, "3 callers wait already")
		require.NoError(t, w.Wait(t.Context(), retry), "a retry has its turn already")
		require.NoError(t, w.Wait(t.Context(), ticket(bucket(time.Second, 1))), "other lines are open")
		wg.Wait()
		idle(t, w)
	})
}

func TestWaiter_allLinesTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Waiter{MaxAll: 5}
		var wg sync.WaitGroup
		keyed := func(key string) *Ticket {
			return &Ticket{Demands: [MaxDemands]Demand{{Limiter: &gateLimiter{until: time.Now().Add(time.Second)}, Key: key}}}
		}
		for i := range 5 {
			wg.Go(func() { assert.NoError(t, w.Wait(t.Context(), keyed(string(rune('a'+i))))) })
		}
		synctest.Wait()
		require.Equal(t, &LineError{Waiting: 5, MaxLine: 5}, w.Wait(t.Context(), keyed("z")))
		require.NoError(t, w.Wait(t.Context(), ticket(bucket(time.Second, 1))), "who need not wait may go")
		wg.Wait()
		require.NoError(t, w.Wait(t.Context(), keyed("z")))
		idle(t, w)
	})
}

func TestWaiter_feedbackOpensAndShutsAtOnce(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		w, g, d := new(Waiter), &gateLimiter{until: time.Now().Add(time.Hour)}, newDiary()
		l, used := as(g), ticket(as(Unlimited))
		used.Add(Demand{Limiter: l, Key: "other"})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				assert.NoError(t, w.Wait(t.Context(), ticket(l)))
				d.note("go")
			})
		}
		time.Sleep(time.Second)
		g.set(time.Now())
		w.Cancel(t.Context(), ticket(l))
		wg.Wait()
		require.Equal(t, time.Second, d.last("go"))
		idle(t, w)
	})
}

// Limiters that cannot be compared cannot be recognized: two of one type do not share a
// queue, so that one of them holds up nobody at the other.
func TestWaiter_limitersThatCannotBeComparedDoNotShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := new(Waiter), newDiary()
		var wg sync.WaitGroup
		for name, l := range map[string]Limiter{
			"slow": uncomparable{bucket(time.Hour, 1), nil},
			"fast": uncomparable{bucket(time.Second, 1), nil},
		} {
			require.NoError(t, w.Wait(t.Context(), ticket(l)))
			for range 2 {
				wg.Go(func() {
					assert.NoError(t, w.Wait(t.Context(), ticket(l)))
					d.note(name)
				})
			}
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 2*time.Second, d.last("fast"))
		require.Equal(t, 2*time.Hour, d.last("slow"))
		idle(t, w)
	})
}

type uncomparable struct {
	Limiter
	_ []int
}
