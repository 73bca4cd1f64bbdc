package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestQueue_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g, l := new(Queue), &holdLimiter{until: time.Now().Add(time.Minute), serverImposed: true}, bucket(time.Hour, 1)
		start := time.Now()
		require.Equal(t, Snapshot{At: start}, q.Snapshot())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { q.Wait(t.Context(), &Ticket{Tenant: "x", Demands: ticket(l, g).Demands}) })
			synctest.Wait() // one after the other, because one may be rejected while another holds the unit of l
		}
		time.Sleep(5 * time.Second)
		wg.Go(func() {
			tk := &Ticket{Tenant: "y", Demands: []throttle.Demand{{Limiter: g, Cost: 4}}}
			q.Wait(t.Context(), tk)
		})
		synctest.Wait()
		time.Sleep(5 * time.Second)
		require.Equal(t, Snapshot{
			At: start.Add(10 * time.Second), Waiting: 4,
			Limits: []LimitSnapshot{
				{Name: "hold", ServerImposed: true, Waiting: 4, Units: 7, Blocked: 4, Tenants: 2, LongestWait: 10 * time.Second, GrantAfter: 50 * time.Second, Since: start},
				{Waiting: 3, Units: 3, Since: start},
			},
			Classes: []ClassSnapshot{
				{Demands: ticket(l, g).Demands, Tenant: "x", Waiting: 3, HeadWaited: 10 * time.Second, Limit: "hold", GrantAfter: 50 * time.Second},
				{Demands: []throttle.Demand{{Limiter: g, Cost: 4}}, Tenant: "y", Waiting: 1, HeadWaited: 5 * time.Second, Limit: "hold", BehindOther: true},
			},
		}, q.Snapshot())

		time.Sleep(50 * time.Second)
		synctest.Wait()
		s := q.Snapshot()
		require.Equal(t, []any{2, uint64(2)}, []any{s.Waiting, s.Granted}, "one of each tenant")
		require.Equal(t, LimitSnapshot{
			Name: "1h0m0s", Waiting: 2, Units: 2, Blocked: 2, Tenants: 1, LongestWait: time.Minute, GrantAfter: time.Hour, Since: start, Granted: 1,
		}, s.Limits[0])

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, q.Wait(ctx, ticket(l)), throttle.ErrRejected)
		require.ErrorIs(t, q.Try(t.Context(), ticket(l)), throttle.ErrRejected)
		cancel()
		require.ErrorIs(t, q.Wait(ctx, ticket(l)), context.Canceled)
		s = q.Snapshot()
		require.Equal(t, []uint64{2, 2, 1}, []uint64{s.Granted, s.Rejected, s.Failed})

		q.Close()
		wg.Wait()
		s = q.Snapshot()
		require.Equal(t, Snapshot{At: time.Now(), Closed: true, Granted: 2, Rejected: 2, Failed: 3}, s)
	})
}

// TestQueue_snapshotCountsRejectionsOfALimit checks that a limit counts the waiters that
// leave because of it.
func TestQueue_snapshotCountsRejectionsOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), &holdLimiter{until: time.Now().Add(10 * time.Second), serverImposed: true}
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, q.Wait(t.Context(), ticket(l))) })
		synctest.Wait()
		for range 3 {
			tk := ticket(l)
			tk.MaxServerWait = time.Second
			require.ErrorIs(t, q.Wait(t.Context(), tk), throttle.ErrRejected)
		}
		s := q.Snapshot()
		require.Len(t, s.Limits, 1)
		require.Equal(t, []uint64{0, 3}, []uint64{s.Limits[0].Granted, s.Limits[0].Rejected})
		require.EqualValues(t, 3, s.Rejected)
		wg.Wait()
		requireEmpty(t, q)
	})
}

// manyWaiting returns the snapshot of a Queue in which more callers wait than it lists; ticketOf returns that of the i-th.
func manyWaiting(t *testing.T, ticketOf func(i int, l throttle.Limiter) *Ticket) (s Snapshot) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), &holdLimiter{until: time.Now().Add(time.Hour)}
		var wg sync.WaitGroup
		for i := range maxSnapshot + 10 {
			wg.Go(func() { q.Wait(t.Context(), ticketOf(i, l)) })
		}
		synctest.Wait()
		s = q.Snapshot()
		q.Close()
		wg.Wait()
	})
	require.Equal(t, maxSnapshot+10, s.Waiting)
	return s
}

// TestQueue_snapshotIsBounded checks the length of the lists for many keys, and that not all of many tenants at one limit are
// counted.
func TestQueue_snapshotIsBounded(t *testing.T) {
	s := manyWaiting(t, func(i int, l throttle.Limiter) *Ticket {
		return &Ticket{Demands: []throttle.Demand{{Limiter: l, Key: fmt.Sprint(i)}}}
	})
	require.Len(t, s.Limits, maxSnapshot)
	require.Len(t, s.Classes, maxSnapshot)
	require.Equal(t, []int{10, 10}, []int{s.OmittedLimits, s.OmittedClasses})

	s = manyWaiting(t, func(i int, l throttle.Limiter) *Ticket {
		return &Ticket{Tenant: fmt.Sprint(i), Demands: []throttle.Demand{{Limiter: l}}}
	})
	require.Len(t, s.Limits, 1)
	require.Equal(t, []int{maxSnapshot + 10, maxSnapshot}, []int{s.Limits[0].Waiting, s.Limits[0].Blocked})
}

func TestQueue_trace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		var mu sync.Mutex
		add := func(format string, a ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, a...))
		}
		q := &Queue{MaxPerClass: 2, Trace: &Trace{
			Queued:  func(_ *Ticket, l ClassSnapshot) { add("queued at %s, place %d", l.Limit, l.Waiting) },
			Granted: func(t *Ticket) { add("granted after %v for %q", t.Waited(), waitedFor(t)) },
			Failed:  func(_ *Ticket, err error) { add("rejected: %v", err) },
		}}
		g, l := &holdLimiter{until: time.Now().Add(time.Minute)}, bucket(time.Second, 1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { q.Wait(t.Context(), ticket(l, g)) })
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []string{
			"queued at hold, place 1",
			"queued at hold, place 2",
			"rejected: queue: full: 2 callers wait already and the limit is 2: ask again later",
			`granted after 1m0s for "hold"`,
			`granted after 1m1s for "hold"`,
		}, events)
		q.Trace = &Trace{} // nil functions are not called
		require.NoError(t, q.Wait(t.Context(), ticket(throttle.AllowAll)))
	})
}

func TestQueue_waiterLeavesWhenATraceFuncPanics(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, s := &Queue{Trace: &Trace{Queued: func(*Ticket, ClassSnapshot) { panic("trace") }}}, &slotLimiter{}
		l := wrap(s)
		require.PanicsWithValue(t, "trace", func() { q.Wait(t.Context(), ticket(l)) })
		s.end()
		q.Wake()
		requireEmpty(t, q)
		require.NoError(t, q.Wait(t.Context(), ticket(l)), "the unit was not lost")
	})
}

func TestQueue_waitedForIgnoresLongPastWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g, l := new(Queue), &holdLimiter{until: time.Now().Add(time.Hour)}, bucket(time.Second, 1)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		flood(ctx, &wg, q, 3, func() *Ticket { return ticket(g, l) }, func() {})
		time.Sleep(time.Hour + time.Minute)
		last := ticket(g, l)
		require.NoError(t, q.Wait(ctx, last))
		require.Equal(t, "1s", waitedFor(last))
		require.LessOrEqual(t, last.Waited(), 4*time.Second)
		stop()
		wg.Wait()
	})
}

func TestQueue_drain(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := new(Queue), wrap(bucket(time.Second, 1)), newEventLog()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(t, q.Wait(t.Context(), ticket(l)))
				d.record("go")
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, q.Drain(ctx))
		require.ErrorIs(t, q.Wait(t.Context(), ticket(throttle.AllowAll)), ErrClosed)
		require.NoError(t, q.Drain(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(d.start))
		wg.Wait()
		require.Len(t, d.order, 5)
		require.NoError(t, q.Close())
		require.NoError(t, new(Queue).Drain(t.Context()))
		requireEmpty(t, q)
	})
}

// TestQueue_noCallerJoinsAfterItsQueueHasEnded checks a caller that begins to wait while the Queue asks
// a limit for another one, when Drain or Close is called meanwhile. Had it joined afterwards, the
// Queue would have ended twice, with a panic under its lock.
func TestQueue_noCallerJoinsAfterItsQueueHasEnded(t *testing.T) {
	for name, end := range map[string]func(*Queue){
		"Drain": func(q *Queue) { go func() { _ = q.Drain(context.Background()) }() },
		"Close": func(q *Queue) { _ = q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := new(handClock) // no timer asks the limit before the second caller does
				q := &Queue{Clock: clk}
				l := &scriptedLimiter{script: []step{rejects(0, time.Second), rejects(0, time.Second), func(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
					end(q)
					synctest.Wait()
					return throttle.Decision{OK: true, At: c.Now}, nil
				}}}
				var first, second error
				var wg sync.WaitGroup
				wg.Go(func() { first = q.Wait(t.Context(), ticket(l)) })
				synctest.Wait()
				clk.now.Store(int64(time.Second))
				wg.Go(func() { second = q.Wait(t.Context(), ticket(l)) })
				wg.Wait()
				require.NoError(t, first)
				require.Equal(t, ErrClosed, second)
				require.NoError(t, q.Drain(t.Context()))
				requireEmpty(t, q)
			})
		})
	}
}

// TestQueue_drainWaitsForCallersThatAreRenewed renews a caller that waits while the Queue is drained:
// its hook keeps the demands, or ends the wait, or the caller leaves meanwhile.
func TestQueue_drainWaitsForCallersThatAreRenewed(t *testing.T) {
	stop := errors.New("stop")
	for name, tt := range map[string]struct {
		renew func(cancel context.CancelFunc, q *Queue) error // called after Drain
		want  error
		after time.Duration
	}{
		"waits again":   {func(context.CancelFunc, *Queue) error { return nil }, nil, time.Minute},
		"fails":         {func(context.CancelFunc, *Queue) error { return stop }, stop, 0},
		"is cancelled":  {func(cancel context.CancelFunc, _ *Queue) error { cancel(); return nil }, context.Canceled, 0},
		"is closed out": {func(_ context.CancelFunc, q *Queue) error { return q.Close() }, ErrClosed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
				q, l, start := new(Queue), wrap(&holdLimiter{until: time.Now().Add(time.Minute)}), time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var err error
				var wg sync.WaitGroup
				calls := 0
				wg.Go(func() {
					tk := ticket(l)
					err = q.WaitHooks(ctx, tk, Hooks{Renew: func() error {
						if calls++; calls == 1 {
							return nil
						}
						return tt.renew(cancel, q)
					}})
				})
				synctest.Wait()
				wg.Go(func() {
					assert.NoError(t, q.Drain(context.Background()))
					assert.Equal(t, tt.after, time.Since(start))
				})
				synctest.Wait()
				q.Renew(l)
				wg.Wait()
				require.Equal(t, tt.want, err)
				require.Equal(t, 2, calls)
				require.ErrorIs(t, q.Wait(t.Context(), ticket(throttle.AllowAll)), ErrClosed)
				requireEmpty(t, q)
			})
		})
	}
}

func TestQueue_waitedForIsTheLimitWithTheLongestTotalWait(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, a, b := new(Queue), wrap(bucket(10*time.Second, 1)), wrap(bucket(11*time.Second, 1))
		require.NoError(t, q.Wait(t.Context(), ticket(a, b)))
		tk := ticket(a, b)
		require.NoError(t, q.Wait(t.Context(), tk))
		require.Equal(t, 11*time.Second, tk.Waited())
		require.Equal(t, "10s", waitedFor(tk), "10 s for the one, then 1 s for the other")
	})
}

// TestQueue_snapshotIsInTheOrderOfTheWaits checks the order of limits and classes: the longest wait
// first, then by name, key and tenant.
func TestQueue_snapshotIsInTheOrderOfTheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		var wg sync.WaitGroup
		for i := range 8 {
			l := &holdLimiter{until: time.Now().Add(time.Hour)}
			wg.Go(func() {
				q.Wait(t.Context(), &Ticket{Tenant: fmt.Sprint("t", i), Demands: []throttle.Demand{{Limiter: l, Key: fmt.Sprint("k", 7-i)}}})
			})
			synctest.Wait()
			if i < 4 {
				time.Sleep(time.Second) // the others begin together
			}
		}
		for range 10 {
			s := q.Snapshot()
			var keys, tenants []string
			for i := range s.Limits {
				keys, tenants = append(keys, s.Limits[i].Key), append(tenants, s.Classes[i].Tenant)
			}
			require.Equal(t, []string{"k7", "k6", "k5", "k4", "k0", "k1", "k2", "k3"}, keys)
			require.Equal(t, []string{"t0", "t1", "t2", "t3"}, tenants[:4])
		}
		q.Close()
		wg.Wait()
	})
}
