package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestQueue_grantsInOrderOfArrival(t *testing.T) {
	callers := 1000
	if testing.Short() {
		callers = 300
	}
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := new(Queue), wrap(throttle.NewTokenBucket(throttle.Limit{Count: 2000, Per: time.Second, Burst: 1})), newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range 10 {
					assert.NoError(t, q.Wait(t.Context(), ticket(l)))
					d.record(fmt.Sprint(i))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, time.Duration(10*callers)*500*time.Microsecond, time.Since(d.start))
		for i, caller := range d.order {
			require.Equal(t, fmt.Sprint(i%callers), caller, "turn %d", i)
		}
		requireEmpty(t, q)
	})
}

func TestQueue_cancelledWaitersLoseNoUnits(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := new(Queue), wrap(bucket(time.Millisecond, 1)), newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		cancelled, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("gone")
		var wg sync.WaitGroup
		for i := range 2000 {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = cancelled
			}
			wg.Go(func() {
				if err := q.Wait(ctx, ticket(l)); err != nil {
					assert.Equal(t, cause, err)
					return
				}
				d.record("ok")
			})
		}
		synctest.Wait()
		cancel(cause)
		wg.Wait()
		require.Len(t, d.order, 1000)
		require.Equal(t, time.Second, d.last("ok"))
		requireEmpty(t, q)
	})
}

func TestQueue_aHeldLimitDelaysOnlyTicketsThatNeedIt(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, host, d := new(Queue), wrap(bucket(100*time.Millisecond, 1)), newEventLog()
		search, core := &holdLimiter{until: time.Now().Add(time.Minute)}, &holdLimiter{}
		var wg sync.WaitGroup
		for range 50 {
			for name, l := range map[string]throttle.Limiter{"search": search, "core": core} {
				wg.Go(func() {
					assert.NoError(t, q.Wait(t.Context(), ticket(l, host)))
					d.record(name)
				})
			}
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 4900*time.Millisecond, d.last("core"))
		require.Equal(t, 64900*time.Millisecond, d.last("search"))
		requireEmpty(t, q)
	})
}

func TestQueue_retryKeepsItsPosition(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := new(Queue), wrap(bucket(100*time.Millisecond, 1)), newEventLog()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				tk := ticket(l)
				assert.NoError(t, q.Wait(t.Context(), tk))
				d.record(fmt.Sprint(i))
				if i == 1 {
					time.Sleep(150 * time.Millisecond)
					q.Report(t.Context(), tk, throttle.Feedback{Outcome: throttle.Throttled})
					assert.NoError(t, q.Wait(t.Context(), tk))
					d.record("1 again")
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []string{"0", "1", "2", "1 again", "3", "4"}, d.order)
	})
}

func TestQueue_noBurstAfterAHold(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, g, l, d := new(Queue), &holdLimiter{}, wrap(bucket(time.Second, 1)), newEventLog()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				assert.NoError(t, q.Wait(t.Context(), ticket(g, l)))
				d.record("act")
				if i == 3 {
					g.set(time.Now().Add(time.Minute))
					q.Wake()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, 63*time.Second, d.times["act"][4])
		for i, at := range d.times["act"][1:] {
			require.GreaterOrEqual(t, at-d.times["act"][i], time.Second)
		}
	})
}

func TestQueue_unknownWaitsEndWhenTheLimitChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*Queue, *slotLimiter, *Ticket)
		want time.Duration
	}{
		"observe": {func(q *Queue, _ *slotLimiter, tk *Ticket) { q.Report(context.Background(), tk, throttle.Feedback{}) }, 3 * time.Second},
		"cancel": {func(q *Queue, _ *slotLimiter, tk *Ticket) {
			q.Report(context.Background(), tk, throttle.Feedback{State: throttle.Unused})
		}, 3 * time.Second},
		"wake":    {func(q *Queue, s *slotLimiter, _ *Ticket) { s.end(); q.Wake() }, 3 * time.Second},
		"no news": {func(_ *Queue, s *slotLimiter, _ *Ticket) { s.end() }, 5 * time.Second},
	} {
		localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
			q, s, d := new(Queue), &slotLimiter{free: 10}, newEventLog()
			l := wrap(s)
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					tk := ticket(l)
					assert.NoError(t, q.Wait(t.Context(), tk))
					time.Sleep(999 * time.Millisecond)
					tt.end(q, s, tk)
					d.record("done")
				})
			}
			wg.Wait()
			require.LessOrEqual(t, d.last("done"), tt.want, name)
			requireEmpty(t, q)
		})
	}
}

func TestQueue_failsImmediatelyWhenItCannotEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), bucket(10*time.Second, 1)
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		err := q.Wait(ctx, ticket(l))
		var rejected *throttle.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, throttle.ErrRejected)
		require.Equal(t, 10*time.Second, rejected.Decision.Wait)
		require.Equal(t, "10s", rejected.Decision.Policy)

		go q.Wait(t.Context(), ticket(l)) // other waiters change nothing
		synctest.Wait()
		require.ErrorIs(t, q.Wait(ctx, ticket(l)), context.DeadlineExceeded)

		err = q.Wait(t.Context(), &Ticket{Demands: []throttle.Demand{{Limiter: l, Cost: 2}}})
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, throttle.Forever, rejected.Decision.Wait)
		require.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
		requireEmpty(t, q)
	})
}

func TestQueue_maxWait(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, d := &Queue{MaxWait: 3500 * time.Millisecond}, wrap(bucket(time.Second, 1)), newEventLog()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := q.Wait(t.Context(), ticket(l)); err != nil {
					assert.ErrorIs(t, err, throttle.ErrRejected)
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
					d.record("rejected")
					return
				}
				d.record("granted")
			})
		}
		wg.Wait()
		require.Len(t, d.times["granted"], 4)
		require.LessOrEqual(t, d.last("rejected"), q.MaxWait)
		requireEmpty(t, q)
	})
}

func TestQueue_maxWaitEndsUnknownWaits(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l := &Queue{MaxWait: 300 * time.Millisecond}, wrap(&slotLimiter{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				var rejected *throttle.RejectedError
				assert.ErrorAs(t, q.Wait(t.Context(), ticket(l)), &rejected)
				assert.Equal(t, "slots", rejected.Decision.Policy)
				assert.Equal(t, q.MaxWait, time.Since(start))
			})
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

func TestQueue_longerThanMaxWaitIsRejectedImmediately(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l := &Queue{MaxWait: time.Second}, wrap(&holdLimiter{until: time.Now().Add(time.Minute)})
		start := time.Now()
		require.ErrorIs(t, q.Wait(t.Context(), ticket(l)), throttle.ErrRejected)
		require.Zero(t, time.Since(start))
	})
}

// The server imposes a wait of an hour while callers wait. Those with a shorter
// MaxServerWait are rejected immediately, also behind callers that may wait longer.
func TestQueue_longerThanMaxServerWaitIsRejectedImmediately(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, g := new(Queue), &holdLimiter{until: time.Now().Add(10 * time.Second), serverImposed: true}
		l, start := wrap(g), time.Now()
		var took [6]time.Duration
		var errs [6]error
		var wg sync.WaitGroup
		join := func(i int, maxWait time.Duration) {
			wg.Go(func() {
				tk := ticket(l)
				tk.MaxServerWait = maxWait
				errs[i] = q.Wait(t.Context(), tk)
				took[i] = time.Since(start)
			})
			synctest.Wait()
		}
		join(0, time.Minute)
		join(1, 0)
		join(2, time.Minute)
		join(3, 2*time.Hour)
		join(4, time.Minute)
		time.Sleep(time.Second)
		g.set(time.Now().Add(time.Hour))
		q.Wake()
		synctest.Wait()
		join(5, 3*time.Hour)
		wg.Wait()
		const opened = time.Hour + time.Second
		require.Equal(t, [6]time.Duration{time.Second, opened, time.Second, opened, time.Second, opened}, took)
		for i, err := range errs {
			var r *throttle.RejectedError
			if took[i] == opened {
				require.NoError(t, err)
				continue
			}
			require.ErrorAs(t, err, &r)
			require.Equal(t, time.Hour, r.Decision.Wait)
			require.NoError(t, r.Reason)
		}
		requireEmpty(t, q)
	})
}

// Waiters of other tenants are rejected, too, although their class is not the first.
func TestQueue_longerThanMaxServerWaitIsRejectedInAllClasses(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, g := new(Queue), &holdLimiter{until: time.Now().Add(10 * time.Second), serverImposed: true}
		l, other, start := wrap(g), wrap(bucket(time.Second, 5)), time.Now()
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		join := func(name string, tk *Ticket, maxWait time.Duration) {
			tk.MaxServerWait = maxWait
			wg.Go(func() {
				q.Wait(t.Context(), tk)
				mu.Lock()
				defer mu.Unlock()
				took[name] = time.Since(start)
			})
			synctest.Wait()
		}
		tenant := ticket(l)
		tenant.Tenant = "b"
		join("patient", ticket(l), 0)
		join("tenant", tenant, time.Minute)
		join("two limits", ticket(other, l), time.Minute)
		time.Sleep(time.Second)
		g.set(time.Now().Add(time.Hour))
		q.Wake()
		wg.Wait()
		require.Equal(t, map[string]time.Duration{"patient": time.Hour + time.Second, "tenant": time.Second, "two limits": time.Second}, took)
		requireEmpty(t, q)
	})
}

func TestQueue_longerThanMaxServerWaitIsNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g, start := new(Queue), &holdLimiter{until: time.Now().Add(time.Hour), serverImposed: true}, time.Now()
		for range 3 {
			tk := ticket(g)
			tk.MaxServerWait = time.Minute
			require.ErrorIs(t, q.Wait(t.Context(), tk), throttle.ErrRejected)
		}
		require.Zero(t, time.Since(start))

		tk := ticket(g)
		tk.MaxServerWait = time.Minute
		g.serverImposed = false // a limit of our own has no maximum wait
		require.NoError(t, q.Wait(t.Context(), tk))
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestQueue_doesNotSpinOnALimiterWithWrongWaits(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, lying := new(Queue), new(lyingLimiter)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, q.Wait(ctx, ticket(wrap(lying))), context.Canceled)
		require.Less(t, lying.calls.Load(), int64(1100))
		requireEmpty(t, q)
	})
}

// A lyingLimiter rejects every claim with a wait of 1 ns.
type lyingLimiter struct{ calls atomic.Int64 }

func (l *lyingLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.calls.Add(1)
	return throttle.Decision{At: c.Now, Wait: 1}, nil
}
func (*lyingLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*lyingLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
func TestQueue_close(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, g := new(Queue), wrap(&holdLimiter{until: time.Now().Add(time.Hour)})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { assert.ErrorIs(t, q.Wait(t.Context(), ticket(g)), ErrClosed) })
		}
		synctest.Wait()
		require.NoError(t, q.Close())
		wg.Wait()
		require.ErrorIs(t, q.Wait(t.Context(), ticket(bucket(1, 1))), ErrClosed)
		require.NoError(t, q.Close())
		requireEmpty(t, q)
	})
}

// A rejectAfter limiter rejects all claims with throttle.Forever, the first after running f.
type rejectAfter struct {
	once sync.Once
	f    func()
}

func (a *rejectAfter) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	a.once.Do(a.f)
	return throttle.Decision{Policy: "afterwards", Wait: throttle.Forever}, nil
}

func (*rejectAfter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*rejectAfter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// A ticket that is rejected by its second limit has held the units of the first for a moment. A
// ticket that was rejected meanwhile is granted immediately when they are returned.
func TestQueue_unitsHeldBrieflyDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), bucket(time.Hour, 1)
		start := time.Now()
		var waited atomic.Int64
		waited.Store(-1)
		first := ticket(l, &rejectAfter{f: func() {
			go func() {
				if q.Wait(t.Context(), ticket(l)) == nil {
					waited.Store(int64(time.Since(start)))
				}
			}()
			synctest.Wait()
			require.Negative(t, waited.Load())
		}})
		require.ErrorIs(t, q.Wait(t.Context(), first), throttle.ErrRejected)
		require.Zero(t, waited.Load())
	})
}

func TestQueue_unknownWaitsAreNotRejected(t *testing.T) {
	for name, set := range map[string]func(g *unknownHold){
		"imposed": func(g *unknownHold) { g.serverImposed = true },
		"own":     func(*unknownHold) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, q := new(unknownHold), new(Queue)
				set(g)
				require.NoError(t, q.Wait(t.Context(), new(Ticket))) // starts the clock of q
				time.Sleep(time.Millisecond)
				go func() {
					time.Sleep(10 * time.Millisecond)
					g.open.Store(true)
					q.Wake()
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				tk, start := ticket(g), time.Now()
				require.NoError(t, q.Wait(ctx, tk), "the deadline is later than the grant")
				require.Equal(t, 10*time.Millisecond, time.Since(start))
				requireEmpty(t, q)
			})
		})
	}
}

// An unknownHold rejects all claims until it is open. Its rejections state no wait.
type unknownHold struct {
	serverImposed bool
	open          atomic.Bool
}

func (g *unknownHold) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	open := g.open.Load()
	return throttle.Decision{OK: open, ServerImposed: g.serverImposed && !open, At: c.Now}, nil
}
func (*unknownHold) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*unknownHold) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
func TestQueue_rejectsNegativeSettings(t *testing.T) {
	q := &Queue{Aging: -1}
	require.ErrorContains(t, q.Validate(), "must not be negative")
	require.Equal(t, q.Validate(), q.Wait(t.Context(), ticket(bucket(time.Second, 1))))
	require.NoError(t, new(Queue).Validate())
}

// A lastFeedback records the last Feedback.
type lastFeedback struct {
	throttle.Limiter
	got throttle.Feedback
}

func (l *lastFeedback) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	l.got = f
}

func TestQueue_feedbackUsesTheClockOfTheQueue(t *testing.T) {
	clk := clock.NewMock()
	q, l := &Queue{Clock: clk}, &lastFeedback{Limiter: throttle.AllowAll}
	tk := ticket(l)
	require.NoError(t, q.Wait(t.Context(), tk))
	clk.Add(time.Hour)
	q.Report(t.Context(), tk, throttle.Feedback{})
	require.True(t, l.got.Now.Equal(clk.Now()))
}
