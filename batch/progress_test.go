package batch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/throttle"
)

func TestProgress_countsAndEstimates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []batch.Progress
		_, err := batch.Run(t.Context(), upTo(290), func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			if i%10 == 0 {
				return errors.New("fault")
			}
			return nil
		}, batch.Options{Workers: 2, Total: 290, ProgressInterval: 10 * time.Second, Progress: func(p batch.Progress) { all = append(all, p) }})
		require.ErrorIs(t, err, batch.ErrItems)
		require.Len(t, all, 15)
		for i, p := range all[:14] {
			require.Equal(t, time.Duration(i+1)*10*time.Second, p.Elapsed)
			require.InDelta(t, 20*(i+1), p.Done+p.Failed, 2)
			require.Equal(t, 290-p.Done-p.Failed, p.Left())
			require.InDelta(t, float64(p.Left())/2, p.TimeLeft.Seconds(), 20)
			require.LessOrEqual(t, p.Running, 2)
		}
		last := all[14]
		require.Equal(t, 261, last.Done)
		require.Equal(t, 29, last.Failed)
		require.Zero(t, last.Left())
		require.Zero(t, last.TimeLeft)
	})
}

func TestProgress_aPauseCountsAsTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused batch.Progress
		first := true
		report, err := batch.Run(t.Context(), upTo(100), func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			if i == 50 && first {
				first = false
				return &throttle.RejectedError{Decision: throttle.Decision{Wait: time.Hour}, Reason: heed.ErrMaxWait}
			}
			return nil
		}, batch.Options{Workers: 1, Total: 100, Repeat: batch.RepeatAlways, Progress: func(p batch.Progress) { // it sends no request
			if !p.PausedUntil.IsZero() && paused.PausedUntil.IsZero() {
				paused = p
			}
		}})
		require.NoError(t, err)
		require.Equal(t, time.Hour, report.Paused)
		require.InDelta(t, 3650, paused.TimeLeft.Seconds(), 5)
		require.Contains(t, paused.String(), "50 of 100 done, 1h0m")
		require.Contains(t, paused.String(), "left, paused until ")
	})
}

func TestProgress_String(t *testing.T) {
	for want, p := range map[string]batch.Progress{
		"0 done":      {},
		"3 of 9 done": {Done: 3, Total: 9},
		"3 of 9 done, 1 failed, 2 unknown, 5s left": {Done: 3, Total: 9, Failed: 1, Unknown: 2, TimeLeft: 5 * time.Second},
	} {
		require.Equal(t, want, p.String())
	}
	require.Equal(t, -1, batch.Progress{Done: 3}.Left())
	require.Equal(t, 0, batch.Progress{Done: 3, Total: 2}.Left())
}
