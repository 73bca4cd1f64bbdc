package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// ticketWithin returns a ticket with the given Latency, and a context that ends after deadline.
func ticketWithin(t *testing.T, l throttle.Limiter, deadline, latency time.Duration) (context.Context, *Ticket) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	tk := ticket(l)
	tk.Latency = latency
	return ctx, tk
}

func TestQueue_rejectsWhenTheWorkCannotEndBeforeTheDeadline(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, start := new(Queue), wrap(bucket(10*time.Second, 1)), time.Now()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		for _, tt := range []struct {
			deadline, latency time.Duration
		}{
			{12 * time.Second, 3 * time.Second},
			{12 * time.Second, 2 * time.Second}, // the work would end at the deadline
			{12 * time.Second, time.Minute},
		} {
			ctx, tk := ticketWithin(t, l, tt.deadline, tt.latency)
			err := q.Wait(ctx, tk)
			var rejected *throttle.RejectedError
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, context.DeadlineExceeded, rejected.Reason)
			require.Equal(t, 10*time.Second, rejected.Decision.Wait)
			require.Zero(t, time.Since(start))
		}
		ctx, tk := ticketWithin(t, l, 12*time.Second, 2*time.Second-1)
		require.NoError(t, q.Wait(ctx, tk))
		require.Equal(t, 10*time.Second, time.Since(start))
		requireEmpty(t, q)
	})
}

// A caller joins a limit that never grants, one each second. Those that come while there have been waiters for less than
// their own time leave Latency before their deadline, the later ones HighLatency, unless that is in the first half.
func TestQueue_leavesEarlierWhereOthersStand(t *testing.T) {
	for high, want := range map[time.Duration][]time.Duration{
		4 * time.Second: {9, 9, 8, 7, 6, 6}, // not before others have waited for 10 s
		6 * time.Second: {9, 9, 9, 9, 9, 9},
		0:               {9, 9, 9, 9, 9, 9},
	} {
		localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
			q, l := new(Queue), wrap(new(slotLimiter))
			took := make([]time.Duration, 6)
			var wg sync.WaitGroup
			for i := range took {
				wg.Go(func() {
					ctx, tk := ticketWithin(t, l, 10*time.Second, time.Second)
					tk.HighLatency = high
					start := time.Now()
					assert.ErrorIs(t, q.Wait(ctx, tk), context.DeadlineExceeded)
					took[i] = time.Since(start) / time.Second
				})
				time.Sleep(time.Second)
			}
			wg.Wait()
			require.Equal(t, want, took, high)
			requireEmpty(t, q)
		})
	}
}

func TestQueue_grantsImmediatelyWhateverTheLatency(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, start := new(Queue), time.Now()
		ctx, tk := ticketWithin(t, wrap(bucket(10*time.Second, 1)), time.Second, time.Minute)
		require.NoError(t, q.Wait(ctx, tk))
		require.Zero(t, time.Since(start))
		requireEmpty(t, q)
	})
}

// Three callers wait for a slot that becomes free at an unknown time. The second leaves first,
// without a slot, after half of its time.
func TestQueue_leavesTheQueueLatencyBeforeTheDeadline(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, s, start := new(Queue), &slotLimiter{free: 1}, time.Now()
		l := wrap(s)
		first := ticket(l)
		require.NoError(t, q.Wait(t.Context(), first))
		took, errs := [3]time.Duration{}, [3]error{}
		var wg sync.WaitGroup
		for i, latency := range []time.Duration{4 * time.Second, 7 * time.Second, 0} {
			wg.Go(func() {
				ctx, tk := ticketWithin(t, l, 10*time.Second, latency)
				errs[i] = q.Wait(ctx, tk)
				took[i] = time.Since(start)
				q.Report(ctx, tk, throttle.Feedback{State: throttle.Unused})
			})
			synctest.Wait()
		}
		time.Sleep(6500 * time.Millisecond) // the first two have left
		q.Report(t.Context(), first, throttle.Feedback{State: throttle.Unused})
		wg.Wait()
		require.Equal(t, [3]time.Duration{6 * time.Second, 5 * time.Second, 6500 * time.Millisecond}, took)
		for _, err := range errs[:2] {
			var rejected *throttle.RejectedError
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, context.DeadlineExceeded, rejected.Reason)
			require.Equal(t, "slots", rejected.Decision.Policy)
		}
		require.NoError(t, errs[2])
		require.EqualValues(t, 1, s.free)
		requireEmpty(t, q)
	})
}

func TestQueue_theEarlierOfMaxWaitAndLatencyEndsTheWait(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, l, start := &Queue{MaxWait: 4 * time.Second}, wrap(&slotLimiter{}), time.Now()
		var wg sync.WaitGroup
		for _, tt := range []struct {
			deadline, latency, took time.Duration
			reason                  error
		}{
			{5 * time.Second, 2 * time.Second, 3 * time.Second, context.DeadlineExceeded},
			{10 * time.Second, 5 * time.Second, 4 * time.Second, nil},
			{time.Second, time.Minute, 500 * time.Millisecond, context.DeadlineExceeded},
		} {
			wg.Go(func() {
				ctx, tk := ticketWithin(t, l, tt.deadline, tt.latency)
				var rejected *throttle.RejectedError
				if assert.ErrorAs(t, q.Wait(ctx, tk), &rejected) {
					assert.Equal(t, tt.reason, rejected.Reason)
				}
				assert.Equal(t, tt.took, time.Since(start))
			})
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

// Clock is ahead of the real clock: the wait lasts until the deadline on the real clock.
func TestQueue_latencyCountsOnTheClockOfContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := &jumpClock{now: time.Unix(0, 0)}
		q, s := &Queue{Clock: clk}, &slotLimiter{}
		done := make(chan error, 1)
		ctx, tk := ticketWithin(t, s, 10*time.Second, 2*time.Second)
		go func() { done <- q.Wait(ctx, tk) }()
		synctest.Wait()
		clk.jump(time.Hour)
		require.Empty(t, done)
		time.Sleep(9 * time.Second)
		clk.jump(8 * time.Second)
		require.ErrorIs(t, <-done, throttle.ErrRejected)
		requireEmpty(t, q)
	})
}

// An estimating limiter rejects all claims for a second, because of an estimate or because of
// a statement of the server.
type estimating struct{ estimated bool }

func (e *estimating) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{Policy: "learned rate", At: c.Now, Wait: time.Second, ServerImposed: true, Estimated: e.estimated}, nil
}
func (*estimating) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*estimating) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// An estimate that repeats short waits holds a waiter for at most MaxServerWait. For waits that
// the server states, MaxServerWait bounds each wait alone.
func TestQueue_estimatesHoldForAtMostMaxServerWait(t *testing.T) {
	for _, estimated := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var q Queue
			l := &estimating{estimated}
			var wg sync.WaitGroup
			start := time.Now()
			for i := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Second)
					ticket := Ticket{MaxServerWait: time.Minute}
					ticket.Add(throttle.Demand{Limiter: l})
					err := q.Wait(ctx, &ticket)
					if !estimated {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						return
					}
					var rejected *throttle.RejectedError
					if assert.ErrorAs(t, err, &rejected) {
						assert.True(t, rejected.Decision.Estimated)
						assert.Equal(t, "learned rate", rejected.Decision.Policy)
					}
					assert.Equal(t, time.Minute, ticket.Waited())
					assert.Equal(t, time.Minute+time.Duration(i)*time.Second, time.Since(start))
				})
			}
			wg.Wait()
		})
	}
}

// TestQueue_grantsAtTheEndOfMaxWait checks a wait that is exactly as long as MaxWait: it is not
// longer, and ends with a grant.
func TestQueue_grantsAtTheEndOfMaxWait(t *testing.T) {
	for maxWait, granted := range map[time.Duration]int{2*time.Second - 1: 0, 2 * time.Second: 1, 2*time.Second + 1: 1, 4*time.Second - 1: 1, 4 * time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			q, l, start := &Queue{MaxWait: maxWait}, bucket(2*time.Second, 1), time.Now()
			require.NoError(t, q.Wait(t.Context(), ticket(l)))
			var wg sync.WaitGroup
			var n atomic.Int64
			for range 3 {
				wg.Go(func() {
					if q.Wait(t.Context(), ticket(l)) == nil {
						n.Add(1)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			require.EqualValues(t, granted, n.Load(), maxWait)
			require.LessOrEqual(t, time.Since(start), maxWait)
			requireEmpty(t, q)
		})
	}
}
