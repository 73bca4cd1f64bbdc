package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// rejectionCounters are limiters of ten units per second that react to rejections.
var rejectionCounters = map[string]func() throttle.Limiter{
	"Ban": func() throttle.Limiter {
		return keyed.NewBan(bucket(100*time.Millisecond, 1), keyed.BanConfig{Rejections: 5, Within: time.Minute, Duration: 10 * time.Minute})
	},
	"SlidingLog": func() throttle.Limiter {
		return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 1, Per: 100 * time.Millisecond}, CountRejected: true})
	},
	"keyed.Limiter": func() throttle.Limiter {
		return &keyed.Limiter{New: func(string) throttle.Limiter {
			return keyed.NewBan(bucket(100*time.Millisecond, 1), keyed.BanConfig{Rejections: 5, Within: time.Minute, Duration: 10 * time.Minute})
		}}
	},
}

func TestQueue_waitingDoesNotCountAsRejections(t *testing.T) {
	for name, new := range rejectionCounters {
		t.Run(name, func(t *testing.T) {
			localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
				q, l, start := &Queue{}, wrap(new()), time.Now()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						tk := ticket(l)
						assert.NoError(t, q.Wait(t.Context(), tk))
						q.Report(t.Context(), tk, throttle.Feedback{})
					})
				}
				wg.Wait()
				require.Equal(t, 900*time.Millisecond, time.Since(start))
				requireEmpty(t, q)
			})
		})
	}
}

// Five callers cannot wait as long as the limit requires: the fifth rejection starts the ban.
func TestQueue_aFailedWaitCountsAsOneRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := new(Queue), rejectionCounters["Ban"]()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		for i := range 5 {
			d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			require.Equal(t, 100*time.Millisecond, d.Wait, i)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			require.ErrorIs(t, q.Wait(ctx, ticket(throttle.AllOf(l))), throttle.ErrRejected)
			cancel()
		}
		d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, 10*time.Minute, d.Wait)
	})
}

// TestQueue_rejectionByAnotherLimitTakesNothing lets one limit reject tickets permanently. The other
// limit, which counts rejections, keeps its units.
func TestQueue_rejectionByAnotherLimitTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := new(Queue)
		log := throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 2, Per: time.Hour}, CountRejected: true})
		for _, ask := range []func(*Ticket) error{
			func(tk *Ticket) error { return q.Wait(t.Context(), tk) },
			func(tk *Ticket) error { return q.Try(t.Context(), tk) },
		} {
			require.ErrorIs(t, ask(ticket(log, throttle.DenyAll)), throttle.ErrRejected)
			require.ErrorIs(t, ask(ticket(throttle.DenyAll, log)), throttle.ErrRejected)
		}
		require.NoError(t, q.Try(t.Context(), ticket(log)))
		require.NoError(t, q.Try(t.Context(), ticket(log)))
		require.ErrorIs(t, q.Try(t.Context(), ticket(log)), throttle.ErrRejected)
		requireEmpty(t, q)
	})
}
