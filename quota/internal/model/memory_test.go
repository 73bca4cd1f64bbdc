package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// windowEstimate returns an estimate of which 50 of 100 units are left as of now, until a minute later. The
// server restores all units at the reset.
func windowEstimate(now time.Time) (e statedlimit.Estimate) {
	var f inflight.Claims
	limit := throttle.RemoteLimit{Limit: 100, Remaining: 80, ResetAfter: 70 * time.Second, Per: 2 * time.Minute}
	send := func(n int, at time.Time) {
		for range n {
			e.Granted(at, &f, statedlimit.Pacing{}, .5)
			f.End(f.Add())
		}
	}
	send(20, now.Add(-11*time.Second))
	e.Update(limit, 20, now.Add(-10*time.Second), &f)
	send(30, now.Add(-10*time.Second))
	limit.Remaining, limit.ResetAfter = 50, time.Minute
	e.Update(limit, 50, now, &f)
	return e
}

// logEstimate returns an estimate of which 60 of 100 units are left as of now. The server restores each unit two
// minutes after it was used, so the estimate has a log.
func logEstimate(now time.Time) statedlimit.Estimate {
	e := windowEstimate(now)
	e.Update(throttle.RemoteLimit{Limit: 100, Remaining: 60, ResetAfter: time.Minute, Per: 2 * time.Minute}, 51, now, &inflight.Claims{Sent: 51})
	return e
}

// The memory of a log is released when the limit proves to be one of windows.
func TestQuota_releasesTheMemoryOfALog(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	e := logEstimate(now)
	require.True(t, e.HasLog())
	e.Probe, e.Remaining, e.Reset, e.LastSent = true, 0, now, 0
	q.Estimates = []statedlimit.Estimate{e}
	require.True(t, q.Account.Memory.Reserve(bytesOf(q.Estimates)))
	q.InFlight.Add()
	q.updateEstimates(1, &throttle.Feedback{Now: now}, now)
	require.False(t, q.Estimates[0].HasLog())
	require.Equal(t, EstimateBytes, q.Account.Memory.Load())
	q.Estimates[0].Probe, q.Estimates[0].LastSent = true, 0
	q.updateEstimates(1, &throttle.Feedback{Now: now, Outcome: throttle.Throttled}, now)
	require.Empty(t, q.Estimates, "the response to the probe does not state it")
	require.Zero(t, q.Account.Memory.Load())
}

// A quota that is dropped releases all that it has reserved, and learns nothing any more.
func TestQuota_isDroppedWithItsMemory(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	require.NotNil(t, q.infer(learnedlimit.AcceptedSpan{}, now))
	q.Estimates = []statedlimit.Estimate{logEstimate(now)}
	require.Equal(t, inferenceBytes+EstimateBytes+statedlimit.LogBytes, q.DropAll())
	require.Empty(t, q.Estimates)
	require.Nil(t, q.infer(learnedlimit.AcceptedSpan{}, now))
	require.Equal(t, -1, q.find(throttle.RemoteLimit{Limit: 9}, now))
}
