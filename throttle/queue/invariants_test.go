package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A ticket holds a reservation of a while it waits for b. When another ticket goes before it
// at a, the reservation ends, and it no longer delays tickets that need only b.
func TestQueue_reservationEndsBehindAHigherPriority(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, d, start := new(Queue), newEventLog(), time.Now()
		at := func(ms time.Duration) time.Time { return start.Add(ms * time.Millisecond) }
		ga, gb := &holdLimiter{until: at(100)}, &holdLimiter{until: at(190)}
		a, b := wrap(ga), wrap(gb)
		var wg sync.WaitGroup
		wait := func(ms time.Duration, name string, tk *Ticket) {
			time.Sleep(time.Until(at(ms)))
			wg.Go(func() {
				if q.Wait(t.Context(), tk) == nil {
					d.record(name)
				}
			})
			synctest.Wait()
		}
		wait(0, "both", ticket(a, b))
		time.Sleep(time.Until(at(150)))
		ga.set(at(500))
		high := ticket(a)
		high.Priority = 1
		wait(160, "high", high)
		wait(200, "b alone", ticket(b))
		wg.Wait()
		require.Equal(t, map[string][]time.Duration{
			"b alone": {200 * time.Millisecond}, "high": {500 * time.Millisecond}, "both": {500 * time.Millisecond},
		}, d.times)
		requireEmpty(t, q)
	})
}

// The next waiter of a class does not inherit the rejections of the one before it: it reserves
// limits exactly when the first waiter of a new class would.
func TestQueue_newHeadBeginsWithoutReservation(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := rand.New(rand.NewPCG(1, 1))
	q := new(Queue)
	q.initOnce.Do(q.init)
	reject := func(c *class, limit int, wait int64) {
		e := &c.entries[limit]
		q.updateReservation(c, e, q.now+wait)
		c.blockedAt = e
	}
	reserved := 0
	for range 500 {
		q.now = 1000 * ms
		old := &class{entries: make([]queueEntry, 3), newHead: true}
		for i := range old.entries {
			old.entries[i].index = -1
		}
		for range r.IntN(6) {
			q.now += r.Int64N(300) * ms
			reject(old, r.IntN(3), r.Int64N(1200)*ms)
		}
		at := old.blockedAt
		old.blockedAt = nil // old is in no limitQueue
		q.headChanged(old)
		old.blockedAt = at
		fresh := &class{entries: make([]queueEntry, 3), newHead: true}
		for range 6 {
			limit, wait := r.IntN(3), r.Int64N(1200)*ms
			q.now += r.Int64N(100) * ms
			reject(old, limit, wait)
			reject(fresh, limit, wait)
			require.Equal(t, fresh.reservedUntil, old.reservedUntil)
			if fresh.reservedUntil != 0 {
				reserved++
			}
		}
	}
	require.Greater(t, reserved, 500)
}

// A limit that rejects more than maxBroken claims in a row, each made at the instant that it
// stated, is then asked once per brokenRetryInterval; not so if another limit has rejected the
// ticket in between.
func TestQueue_pausesAfterBrokenPromises(t *testing.T) {
	for name, others := range map[string]int{"one limit": 0, "another limit rejects in between": 1} {
		synctest.Test(t, func(t *testing.T) {
			q, start := new(Queue), time.Now()
			var asked []time.Duration
			broken := func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
				asked = append(asked, time.Since(start))
				return throttle.Decision{At: c.Now, Wait: time.Microsecond}, nil
			}
			l := &scriptedLimiter{name: "broken"}
			other := &scriptedLimiter{name: "other"}
			for range 30 {
				l.script = append(l.script, broken)
				for range others {
					l.script = append(l.script, grants(0))
					other.script = append(other.script, rejects(0, 2*time.Microsecond))
				}
			}
			require.NoError(t, q.Wait(t.Context(), ticket(l, other)))
			paused := 0
			for i := range asked[1:] {
				if asked[i+1]-asked[i] >= time.Millisecond {
					paused++
				}
			}
			if others > 0 {
				require.Zero(t, paused, name)
				return
			}
			// Two claims are not made at a stated instant: one before the ticket waits, and one when it begins to.
			require.Less(t, asked[2+maxBroken], time.Millisecond, name)
			require.Equal(t, len(asked)-1-(2+maxBroken), paused, name)
		})
	}
}

// requireConsistent checks what holds whenever no goroutine runs.
func requireConsistent(t *testing.T, q *Queue) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	total := 0
	waiters, units, late := map[*limitQueue]int{}, map[*limitQueue]int64{}, map[*limitQueue]int64{}
	classes, tenants, needs := map[*limitQueue]int{}, map[*limitQueue]map[string]bool{}, map[*limitQueue]map[string]int{}
	for key, c := range q.classes {
		require.Equal(t, key, c.key)
		require.NotZero(t, c.waiters.Len())
		total += c.waiters.Len()
		for i, w := range c.waiters.Items {
			if i != int(w.classIndex) || w.class != c || w.ticket.grant != nil || w.late && c.mixed {
				require.Fail(t, "a waiter is not one of its class", "index %d, waiter %+v", i, w)
			}
			if c.reserving == w {
				continue
			}
			end := min(q.maxWaitEnd(w), w.latencyEnd(q.now, q.realNow()), w.estimateEnd())
			if (end == never) != (w.deadlineIndex < 0) || end != never && end != q.deadlines.Items[w.deadlineIndex].at {
				require.Fail(t, "a deadline is wrong", "end %d, waiter %+v", end, w)
			}
			if c.waiters.Order.Less(w, c.waiters.First()) {
				require.Fail(t, "a waiter is before the first")
			}
		}
		for i := range c.entries {
			e := &c.entries[i]
			classes[e.limitQueue]++
			waiters[e.limitQueue] += c.waiters.Len()
			for _, w := range c.waiters.Items {
				for _, m := range w.ticket.Demands {
					if m.Limiter == e.limitQueue.key.limiter {
						units[e.limitQueue] += max(m.Cost, 1)
						if w.late {
							late[e.limitQueue] += max(m.Cost, 1)
						}
					}
				}
			}
			queued := e == c.blockedAt || c.reservedUntil != 0
			require.True(t, !queued || c.reserving != nil || e.index >= 0)
			require.True(t, e.index < 0 || queued, "a class waits only at the limit that rejected it, unless it reserves others")
			require.True(t, c.reservedUntil == 0 || c.reserving != nil || c.blockedAt.limitQueue.first() == c.blockedAt, "what reserves others is first at the limit that rejected it")
			if needs[e.limitQueue] == nil {
				needs[e.limitQueue] = map[string]int{}
			}
			needs[e.limitQueue][key.tenant]++
			if e.index < 0 {
				continue
			}
			if tenants[e.limitQueue] == nil {
				tenants[e.limitQueue] = map[string]bool{}
			}
			tenants[e.limitQueue][key.tenant] = true
			require.True(t, e.tenantQueue.entries.Items[e.index] == e)
			first := e.limitQueue.first()
			require.False(t, byFinish{}.Less(e.tenantQueue, first.tenantQueue) || byHeadWaiter{}.Less(e, e.tenantQueue.entries.First()))
			if first == e && e == c.blockedAt && c.reserving == nil {
				require.Less(t, q.timer.at, int64(never), "a class that waits is asked again")
				require.GreaterOrEqual(t, e.limitQueue.scheduledIndex, 0)
			}
		}
	}
	require.EqualValues(t, total, q.numWaiting.Load()&^closedBit)
	for key, lq := range q.limitQueues {
		require.Equal(t, key, lq.key)
		require.Equal(t, classes[lq], lq.numClasses)
		require.Equal(t, waiters[lq], lq.waiting)
		require.Equal(t, units[lq], lq.waitingUnits)
		require.Equal(t, late[lq], lq.lateUnits)
		require.Equal(t, len(tenants[lq]), lq.tenants.Len())
		require.Equal(t, needs[lq][""], lq.defaultTenant.numClasses)
		delete(needs[lq], "")
		require.Equal(t, len(needs[lq]), len(lq.byTenant), "nothing is kept of a tenant without waiters")
		for name, n := range needs[lq] {
			require.Equal(t, n, lq.byTenant[name].numClasses)
		}
		require.Equal(t, lq.retryAt == never, lq.scheduledIndex < 0)
	}
	require.Equal(t, q.nextEvent(), q.timer.at)
}

// requireNoneMissed checks that no class waits that goes first at all of its limits and that
// they would grant now.
func requireNoneMissed(t *testing.T, q *Queue) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now = q.time.Read(time.Time{})
	for _, c := range q.classes {
		yields := slices.ContainsFunc(c.entries, func(e queueEntry) bool {
			first := e.limitQueue.first()
			return first != nil && first.class != c
		})
		if yields || c.reserving != nil {
			continue
		}
		granted := true
		tk := c.waiters.First().ticket
		for _, m := range tk.Demands {
			if m.Limiter != nil {
				d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{Key: m.Key, Cost: m.Cost, Now: q.time.At(q.now), DryRun: true})
				granted = granted && err == nil && d.OK
			}
		}
		require.False(t, granted, "a ticket waits that could be granted")
	}
}

// Random callers of several tenants and priorities need random limits, with deadlines of all
// kinds. The state is consistent at random instants, and no grant is missed.
func TestQueue_staysConsistent(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 6 // one of each kind
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 99))
			q := new(Queue)
			q.initOnce.Do(q.init)
			if seed%3 == 0 {
				q.MaxWait = 4 * time.Second
			}
			hold := &holdLimiter{serverImposed: seed%2 == 0}
			limiters := []throttle.Limiter{
				bucket(20*time.Millisecond, 3), bucket(70*time.Millisecond, 5), bucket(130*time.Millisecond, 4), hold,
			}
			var wg sync.WaitGroup
			for i := range uint64(60) {
				own := rand.New(rand.NewPCG(seed, i))
				wg.Go(func() {
					for range 6 {
						time.Sleep(time.Duration(own.Int64N(int64(2 * time.Second))))
						waitAtRandom(t.Context(), q, own, limiters)
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for running := true; running; {
				time.Sleep(time.Duration(1 + r.Int64N(int64(300*time.Millisecond))))
				if r.IntN(5) == 0 {
					hold.set(time.Now().Add(time.Duration(r.Int64N(int64(3 * time.Second)))))
				}
				q.Wake() // hold may have changed, and units of canceled grants are returned without a call of the Queue
				synctest.Wait()
				requireConsistent(t, q)
				requireNoneMissed(t, q)
				select {
				case <-done:
					running = false
				default:
				}
			}
			requireEmpty(t, q)
		})
	}
}

func waitAtRandom(ctx context.Context, q *Queue, r *rand.Rand, limiters []throttle.Limiter) {
	tk := &Ticket{Tenant: []string{"", "a", "b"}[r.IntN(3)], Priority: int32(r.IntN(9) / 7), Weight: int32(r.IntN(3))}
	for _, i := range r.Perm(len(limiters))[:1+r.IntN(3)] {
		tk.Add(throttle.Demand{Limiter: limiters[i], Cost: r.Int64N(4)})
	}
	if r.IntN(3) == 0 {
		tk.MaxServerWait = time.Duration(1 + r.Int64N(int64(2*time.Second)))
	}
	if r.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+r.Int64N(int64(3*time.Second))))
		defer cancel()
		tk.Latency = time.Duration(r.Int64N(int64(time.Second)))
		tk.HighLatency = tk.Latency + time.Duration(r.Int64N(int64(time.Second)))
	}
	if q.Wait(ctx, tk) != nil {
		return
	}
	time.Sleep(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
	q.Report(ctx, tk, throttle.Feedback{})
}

// A limit announces a longer hold. Waiters that would exceed their MaxServerWait are rejected
// immediately, wherever they wait, if the hold is longer than the announced one by more than a
// second, and else when their turn comes.
func TestQueue_longerHoldsRejectWaitersInAllClasses(t *testing.T) {
	for later, immediately := range map[time.Duration]bool{time.Second: false, time.Second + 1: true, time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			q, start := new(Queue), time.Now()
			l := &holdLimiter{until: start.Add(10 * time.Second), serverImposed: true}
			d := newEventLog()
			var wg sync.WaitGroup
			wait := func(name string, most time.Duration, tk *Ticket) {
				tk.MaxServerWait = most
				wg.Go(func() {
					if q.Wait(t.Context(), tk) != nil {
						d.record(name)
					}
				})
				synctest.Wait()
			}
			wait("first", time.Hour, ticket(l))
			for i := range 3 {
				wait(fmt.Sprint("same class ", i), 10*time.Second, ticket(l))
				wait(fmt.Sprint("other class ", i), 10*time.Second, ticket(l, new(holdLimiter)))
			}
			l.set(start.Add(10*time.Second + later))
			q.Wake()
			synctest.Wait()
			if immediately {
				require.Len(t, d.order, 6)
			} else {
				require.Empty(t, d.order)
			}
			q.Close()
			wg.Wait()
			requireEmpty(t, q)
		})
	}
}
