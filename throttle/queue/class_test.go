package queue

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

	"github.com/heed-go/heed/throttle"
)

// flood starts n goroutines that wait with the tickets that next returns until ctx ends.
func flood(ctx context.Context, wg *sync.WaitGroup, q *Queue, n int, next func() *Ticket, granted func()) {
	for range n {
		wg.Go(func() {
			for q.Wait(ctx, next()) == nil {
				granted()
			}
		})
	}
}

func TestQueue_ticketsForTwoBusyLimitsAreNotStarved(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q := new(Queue)
		a := wrap(bucket(100*time.Millisecond, 1))
		time.Sleep(50 * time.Millisecond) // so that both never open at the same instant
		b := wrap(bucket(100*time.Millisecond, 1))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var n [2]int
		flood(ctx, &wg, q, 5, func() *Ticket { return ticket(a) }, func() { n[0]++ })
		time.Sleep(50 * time.Millisecond)
		flood(ctx, &wg, q, 5, func() *Ticket { return ticket(b) }, func() { n[1]++ })
		time.Sleep(time.Second)
		start := time.Now()
		for range 10 {
			came := time.Now()
			require.NoError(t, q.Wait(ctx, ticket(a, b)))
			require.LessOrEqual(t, time.Since(came), 2*time.Second)
		}
		took := time.Since(start)
		stop()
		wg.Wait()
		most := int((took + 1100*time.Millisecond) / (100 * time.Millisecond))
		require.Greater(t, n[0]+n[1], most, "the others go on meanwhile, at more than half of the pace (%v)", n)
		requireEmpty(t, q)
	})
}

func TestQueue_largeClaimsAreNotStarvedBySmallOnes(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l := new(Queue), wrap(bucket(100*time.Millisecond, 10))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, q, 10, func() *Ticket { return ticket(l) }, func() {})
		time.Sleep(10*time.Second + 5*time.Millisecond)
		start := time.Now()
		wg.Go(func() {
			for ctx.Err() == nil { // each limiter here has a unit; each ticket has a class of its own
				time.Sleep(100 * time.Millisecond)
				wg.Go(func() { q.Wait(ctx, ticket(wrap(bucket(1, 1)), l)) })
			}
		})
		require.NoError(t, q.Wait(ctx, &Ticket{Demands: []throttle.Demand{{Limiter: l, Cost: 10}}}))
		require.LessOrEqual(t, time.Since(start), 2*time.Second) // 10 units of earlier tickets, then 10 of its own
		stop()
		wg.Wait()
	})
}

func TestQueue_higherPriorityGoesFirstWithinTheBoundOfAging(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := new(Queue), wrap(bucket(100*time.Millisecond, 1)), newEventLog()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, q, 5, func() *Ticket {
			tk := ticket(l)
			tk.Priority = 2
			return tk
		}, func() { d.record("high") })
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				assert.NoError(t, q.Wait(ctx, ticket(l)))
				d.record("low")
			})
			synctest.Wait()
		}
		time.Sleep(30 * time.Second)
		stop()
		wg.Wait()
		bound := 2*10*time.Second + 8*100*time.Millisecond // 2 steps of Aging, then the tickets that wait at that time
		require.Len(t, d.times["low"], 3)
		require.Greater(t, d.times["low"][0], 20*time.Second)
		require.LessOrEqual(t, d.last("low"), bound)
	})
}

func TestQueue_tenantsShareByWeight(t *testing.T) {
	for name, tt := range map[string]struct {
		callers []int
		weights []int
		costs   []int64
	}{
		"equal":               {callers: []int{1, 2, 10, 50}, weights: []int{0, 0, 1, 1}, costs: []int64{1, 1, 1, 1}},
		"weighted":            {callers: []int{3, 3, 3}, weights: []int{1, 2, 4}, costs: []int64{1, 1, 1}},
		"by units, not calls": {callers: []int{3, 3}, weights: []int{1, 1}, costs: []int64{1, 5}},
	} {
		localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
			q, l := new(Queue), wrap(bucket(10*time.Millisecond, 5))
			own := wrap(throttle.AllowAll)
			length := time.Minute
			if testing.Short() {
				length = 10 * time.Second
			}
			ctx, stop := context.WithTimeout(t.Context(), length)
			defer stop()
			var wg sync.WaitGroup
			var mu sync.Mutex
			got := make([]float64, len(tt.callers))
			for i, n := range tt.callers {
				flood(ctx, &wg, q, n, func() *Ticket {
					tk := &Ticket{Tenant: fmt.Sprint("t", i), Weight: int32(tt.weights[i]), Priority: int32(i)}
					tk.Add(throttle.Demand{Limiter: l, Cost: tt.costs[i]})
					tk.Add(throttle.Demand{Limiter: own, Key: tk.Tenant})
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
			requireEmpty(t, q)
		})
	}
}

func TestQueue_idleTenantsAreForgotten(t *testing.T) {
	tenants := 10_000
	if testing.Short() {
		tenants = 3000
	}
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), bucket(time.Millisecond, 1)
		var wg sync.WaitGroup
		stays := 0
		flood(t.Context(), &wg, q, 1, func() *Ticket { return &Ticket{Tenant: "stays", Demands: ticket(l).Demands} }, func() { stays++ })
		most := 0
		go func() {
			for i := range tenants {
				assert.NoError(t, q.Wait(t.Context(), &Ticket{Tenant: fmt.Sprint(i), Demands: ticket(l).Demands}))
			}
			q.mu.Lock()
			for _, lq := range q.limitQueues {
				most = max(most, len(lq.byTenant))
			}
			q.mu.Unlock()
			q.Close()
		}()
		wg.Wait()
		require.Less(t, most, 100)
		require.Greater(t, stays, tenants*49/100, "new tenants do not starve one that stays")
		requireEmpty(t, q)
	})
}

func TestQueue_fullErrorReportsTheNumberOfWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := &Queue{MaxPerClass: 3}, bucket(time.Second, 1)
		retry := ticket(l)
		require.NoError(t, q.Wait(t.Context(), retry))
		q.Report(t.Context(), retry, throttle.Feedback{Outcome: throttle.Throttled})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), ticket(l))) })
		}
		synctest.Wait()
		err := q.Wait(t.Context(), ticket(l))
		require.ErrorIs(t, err, throttle.ErrRejected)
		require.Equal(t, &FullError{Waiting: 3, Max: 3}, err)
		require.ErrorContains(t, err, "3 callers wait already")
		require.NoError(t, q.Wait(t.Context(), retry), "a retry has its turn already")
		require.NoError(t, q.Wait(t.Context(), ticket(bucket(time.Second, 1))), "other lines are open")
		wg.Wait()
		requireEmpty(t, q)
	})
}

func TestQueue_maxTotalBoundsAllClassesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{MaxTotal: 5}
		var wg sync.WaitGroup
		keyed := func(key string) *Ticket {
			return &Ticket{Demands: []throttle.Demand{{Limiter: &holdLimiter{until: time.Now().Add(time.Second)}, Key: key}}}
		}
		for i := range 5 {
			wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), keyed(string(rune('a'+i))))) })
		}
		synctest.Wait()
		require.Equal(t, &FullError{Waiting: 5, Max: 5}, q.Wait(t.Context(), keyed("z")))
		require.NoError(t, q.Wait(t.Context(), ticket(bucket(time.Second, 1))), "who need not wait may go")
		wg.Wait()
		require.NoError(t, q.Wait(t.Context(), keyed("z")))
		requireEmpty(t, q)
	})
}

func TestQueue_cancelWakesWaitersImmediately(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, g, d := new(Queue), &holdLimiter{until: time.Now().Add(time.Hour)}, newEventLog()
		l, used := wrap(g), ticket(wrap(throttle.AllowAll))
		used.Add(throttle.Demand{Limiter: l, Key: "other"})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				assert.NoError(t, q.Wait(t.Context(), ticket(l)))
				d.record("go")
			})
		}
		time.Sleep(time.Second)
		g.set(time.Now())
		q.Report(t.Context(), ticket(l), throttle.Feedback{State: throttle.Unused})
		wg.Wait()
		require.Equal(t, time.Second, d.last("go"))
		requireEmpty(t, q)
	})
}

// Limiters whose type is not comparable cannot be identified: two of them do not share a
// limitQueue, so that waiters at one do not delay those at the other.
func TestQueue_incomparableLimitersDoNotShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := new(Queue), newEventLog()
		var wg sync.WaitGroup
		for name, l := range map[string]throttle.Limiter{
			"slow": uncomparable{bucket(time.Hour, 1), nil},
			"fast": uncomparable{bucket(time.Second, 1), nil},
		} {
			require.NoError(t, q.Wait(t.Context(), ticket(l)))
			for range 2 {
				wg.Go(func() {
					assert.NoError(t, q.Wait(t.Context(), ticket(l)))
					d.record(name)
				})
			}
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 2*time.Second, d.last("fast"))
		require.Equal(t, 2*time.Hour, d.last("slow"))
		requireEmpty(t, q)
	})
}

type uncomparable struct {
	throttle.Limiter
	_ []int
}
