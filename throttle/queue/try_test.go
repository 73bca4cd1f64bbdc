package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
)

func TestQueue_tryDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var granted, rejected int
		q := &queue.Queue{Trace: &queue.Trace{
			Granted: func(*queue.Ticket) { granted++ },
			Failed:  func(*queue.Ticket, error) { rejected++ },
		}}
		minute := throttle.NewTokenBucket(throttle.PerMinute(1))
		many := throttle.NewTokenBucket(throttle.PerSecond(10))
		ticket := func() *queue.Ticket {
			tk := new(queue.Ticket)
			tk.Add(throttle.Demand{Limiter: many})
			tk.Add(throttle.Demand{Limiter: minute, Key: "k"})
			return tk
		}
		first := ticket()
		require.NoError(t, q.Try(t.Context(), first))
		require.Error(t, q.Try(t.Context(), first), "it is granted already")
		start := time.Now()
		var r *throttle.RejectedError
		require.ErrorAs(t, q.Try(t.Context(), ticket()), &r)
		require.Equal(t, "k", r.Key)
		require.Equal(t, time.Minute, r.Decision.Wait)
		require.Zero(t, time.Since(start))
		d, err := many.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 9, d.Remaining, "what was rejected took nothing")

		q.Report(t.Context(), first, throttle.Feedback{State: throttle.Unused})
		again := ticket()
		require.NoError(t, q.Try(t.Context(), again))
		require.Zero(t, again.Waited())
		require.Equal(t, 2, granted)
		require.Equal(t, 2, rejected)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, q.Try(ended, ticket()), context.Canceled)
		require.NoError(t, q.Close())
		require.ErrorIs(t, q.Try(t.Context(), ticket()), queue.ErrClosed)
	})
}

// Try does not overtake callers that wait for the same limit.
func TestQueue_tryDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(queue.Queue)
		bucket := throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute, Burst: 5})
		demand := func(cost int64) *queue.Ticket {
			tk := new(queue.Ticket)
			tk.Add(throttle.Demand{Limiter: bucket, Cost: cost})
			return tk
		}
		require.NoError(t, q.Try(t.Context(), demand(4)))
		done := make(chan error)
		go func() { done <- q.Wait(t.Context(), demand(2)) }()
		synctest.Wait()
		require.ErrorIs(t, q.Try(t.Context(), demand(1)), throttle.ErrRejected, "one unit is there, and not for us")
		require.NoError(t, <-done)
	})
}

// A rejected Try counts as one rejection, as a failed wait does.
func TestWaiter_tryCountsARejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ban := keyed.BanConfig{Rejections: 3, Within: time.Minute, Duration: time.Hour}
		l := keyed.NewBan(throttle.NewTokenBucket(throttle.PerMinute(1)), ban)
		w := new(queue.Queue)
		ticket := func() *queue.Ticket {
			tk := new(queue.Ticket)
			tk.Add(throttle.Demand{Limiter: l})
			return tk
		}
		require.NoError(t, w.Try(t.Context(), ticket()))
		for range 3 {
			require.ErrorIs(t, w.Try(t.Context(), ticket()), throttle.ErrRejected)
		}
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, time.Hour, d.Wait)
	})
}

// A Try that is rejected because other callers wait for the limit counts once, too.
func TestQueue_tryCountsARejectionWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ban := keyed.BanConfig{Rejections: 3, Within: time.Minute, Duration: time.Hour}
		l := keyed.NewBan(throttle.NewTokenBucket(throttle.PerMinute(1)), ban)
		q := new(queue.Queue)
		ticket := func() *queue.Ticket {
			tk := new(queue.Ticket)
			tk.Add(throttle.Demand{Limiter: l})
			return tk
		}
		require.NoError(t, q.Try(t.Context(), ticket()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Wait(ctx, ticket()) }()
		synctest.Wait()
		for n := range 3 {
			d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			require.LessOrEqual(t, d.Wait, time.Minute, "%d rejections", n)
			require.ErrorIs(t, q.Try(t.Context(), ticket()), throttle.ErrRejected)
		}
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, time.Hour, d.Wait)
		cancel()
		require.Error(t, <-done)
	})
}

func TestWaiter_tryReturnsTheErrorOfItsFields(t *testing.T) {
	w := &queue.Queue{Aging: -1}
	require.ErrorContains(t, w.Try(t.Context(), new(queue.Ticket)), "Aging")
}
