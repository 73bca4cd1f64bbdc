package throttle

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// refusalCounters are limiters of ten units a second that punish refusals.
var refusalCounters = map[string]func() Limiter{
	"Penalty": func() Limiter {
		return NewPenalty(bucket(100*time.Millisecond, 1), Sentence{After: 5, Within: time.Minute, For: 10 * time.Minute}, nil)
	},
	"SlidingLog": func() Limiter {
		return NewSlidingLog(Log{Limit: Limit{Count: 1, Per: 100 * time.Millisecond}, CountRefused: true}, nil)
	},
	"Keyed": func() Limiter {
		return &Keyed{New: func(string) Limiter {
			return NewPenalty(bucket(100*time.Millisecond, 1), Sentence{After: 5, Within: time.Minute, For: 10 * time.Minute}, nil)
		}}
	},
}

func TestWaiter_callersThatWaitAreNotPunished(t *testing.T) {
	for name, new := range refusalCounters {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
				w, l, start := &Waiter{}, as(new()), time.Now()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						tk := ticket(l)
						assert.NoError(t, w.Wait(t.Context(), tk))
						w.Observe(t.Context(), tk, Feedback{})
					})
				}
				wg.Wait()
				require.Equal(t, 900*time.Millisecond, time.Since(start))
				idle(t, w)
			})
		})
	}
}

// TestWaiter_aFailedWaitCountsAsOneRefusal has five callers that cannot wait as long as
// they would have to: the fifth refusal begins the penalty.
func TestWaiter_aFailedWaitCountsAsOneRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := new(Waiter), refusalCounters["Penalty"]()
		require.NoError(t, w.Wait(t.Context(), ticket(l)))
		for i := range 5 {
			d, err := l.Reserve(t.Context(), Claim{DryRun: true})
			require.NoError(t, err)
			require.Equal(t, 100*time.Millisecond, d.Wait, i)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			require.ErrorIs(t, w.Wait(ctx, ticket(AllOf(l))), ErrRefused)
			cancel()
		}
		d, err := l.Reserve(t.Context(), Claim{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, 10*time.Minute, d.Wait)
	})
}

func TestAcceptRatio_callersThatWaitAreNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draw := 0.0
		l := NewAcceptRatio(Accept{Rand: func() float64 { return draw }}, nil)
		w := new(Waiter)
		for range 3 {
			tk := new(Ticket)
			tk.Add(Demand{Limiter: l})
			draw = 1
			require.NoError(t, w.Wait(t.Context(), tk))
			w.Observe(t.Context(), tk, Feedback{Outcome: Failed})
		}
		draw = 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Equal(t, context.DeadlineExceeded, w.Wait(ctx, ticket(l)))
		require.Equal(t, answers{requests: 3}, l.sum)
		idle(t, w)
	})
}
