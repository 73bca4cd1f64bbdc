package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestInstrument_countsAWaitOnce checks that a caller that waits in a queue.Queue is counted once,
// however often its limits are asked: as granted, or as rejected if the wait fails.
func TestInstrument_countsAWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stats := new(Stats)
		l := &Instrument{Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Second, Burst: 1}), Stats: stats}
		w := new(queue.Queue)
		wait := func(most time.Duration) error {
			tk := new(queue.Ticket)
			tk.Add(throttle.Demand{Limiter: l})
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			return w.Wait(ctx, tk)
		}
		for range 3 {
			require.NoError(t, wait(time.Minute))
		}
		require.ErrorIs(t, wait(500*time.Millisecond), throttle.ErrRejected)
		n := stats.Snapshot()
		require.EqualValues(t, 3, n.Allowed)
		require.EqualValues(t, 1, n.Rejected)
		require.True(t, l.Traits().CountsRejected)
	})
}

func TestInstrument_holdsUntilEndIfLimiterDoes(t *testing.T) {
	require.True(t, !(&Instrument{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10})}).Traits().EndsAtResponse)
	require.False(t, !(&Instrument{Limiter: throttle.NewTokenBucket(throttle.PerMinute(10))}).Traits().EndsAtResponse)
}

func TestInstrument_panicsWithoutLimiter(t *testing.T) {
	require.PanicsWithValue(t, "monitor: Instrument: Limiter is nil: set it", func() {
		_, _ = (&Instrument{}).Reserve(t.Context(), throttle.Claim{})
	})
}
