package model

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// windowEstimate returns an estimate of which 50 of 100 units are left as of now, until a minute later. The
// server restores all units at the reset.
func windowEstimate(now time.Time) (e statedlimit.Estimate) {
	var f inflight.Claims
	limit := throttle.RemoteLimit{Limit: 100, Remaining: 99, ResetAfter: 71 * time.Second, Per: 2 * time.Minute}
	send := func(n int, at time.Time) {
		for range n {
			e.Granted(at, &f, statedlimit.Pacing{})
			f.End(f.Add())
		}
	}
	send(1, now.Add(-11*time.Second))
	e.Update(limit, 1, now.Add(-11*time.Second), &f)
	send(19, now.Add(-11*time.Second))
	limit.Remaining, limit.ResetAfter = 80, 70*time.Second
	e.Update(limit, 20, now.Add(-10*time.Second), &f)
	send(30, now.Add(-10*time.Second))
	limit.Remaining, limit.ResetAfter = 50, time.Minute
	e.Update(limit, 50, now, &f)
	return e
}

// The memory of a limit is released when the server does not state it any more.
func TestQuota_releasesTheMemoryOfALimit(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	e := windowEstimate(now)
	e.Probe, e.Remaining, e.Reset, e.LastSent = true, 0, now, 0
	q.Estimates = []statedlimit.Estimate{e}
	require.True(t, q.Account.Memory.Reserve(bytesOf(q.Estimates)))
	q.InFlight.Add()
	q.updateEstimates(1, &throttle.Feedback{Now: now}, false, now)
	require.Equal(t, EstimateBytes, q.Account.Memory.Load())
	q.Estimates[0].Probe, q.Estimates[0].LastSent = true, 0
	q.updateEstimates(1, &throttle.Feedback{Now: now, Outcome: throttle.Throttled}, false, now)
	require.Empty(t, q.Estimates, "the response to the probe does not state it")
	require.Zero(t, q.Account.Memory.Load())
}

// A quota that is dropped releases all that it has reserved, and learns nothing any more.
func TestQuota_isDroppedWithItsMemory(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	require.NotNil(t, q.remember(now))
	q.Estimates = []statedlimit.Estimate{windowEstimate(now)}
	require.Equal(t, LearnedBytes+EstimateBytes, q.DropAll())
	require.Empty(t, q.Estimates)
	require.Nil(t, q.remember(now))
	require.Equal(t, -1, q.find(throttle.RemoteLimit{Limit: 9}, now))
}

// Whatever happens, the bytes that are reserved are those of the estimates and of what was learned, and never more than
// MaxBytes.
func TestQuota_accountsForItsMemory(t *testing.T) {
	most, logs, learned, none := int64(0), 0, 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		q := modelAt(r.Float64())
		a := q.Account
		a.Full, a.NeverTest = r.IntN(4) > 0, r.IntN(4) == 0
		occupied := int64(0)
		if r.IntN(3) == 0 { // there is little memory
			occupied = MaxBytes - r.Int64N(4*EstimateBytes)
			require.True(t, a.Memory.Reserve(occupied))
		}
		if r.IntN(4) == 0 {
			q.Declare(throttle.PerMinute(600))
		}
		sliding := logServer{used: make(map[int]int)}
		var open []throttle.Decision
		now, rejecting := start, r.IntN(3)
		for range 600 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(50*ms<<r.IntN(4))))
			if r.IntN(100) == 0 {
				rejecting = r.IntN(3)
			}
			switch r.IntN(12) {
			case 0, 1, 2, 3, 4:
				if d := ask(q, Claim{Units: 1, Waits: r.IntN(2) > 0}, now); d.OK {
					open = append(open, d)
				}
			case 5:
				q.GaveUp(later(now, q))
			case 6:
				applyPeers(q, r, later(now, q))
			default:
				if len(open) == 0 {
					break
				}
				i := r.IntN(len(open))
				d := open[i]
				open = append(open[:i], open[i+1:]...)
				if r.IntN(20) == 0 {
					q.Canceled(d.Grant, 1)
					break
				}
				respond(q, d, sliding.feedback(r, rejecting, now), now)
			}
			require.GreaterOrEqual(t, a.Memory.Load(), int64(0))
			require.LessOrEqual(t, a.Memory.Load(), int64(MaxBytes))
			want := occupied + bytesOf(q.Estimates)
			if q.sends != nil {
				want += statedlimit.LogBytes
			}
			if q.Learned != nil {
				want += LearnedBytes
			}
			require.Equal(t, want, a.Memory.Load(), "seed %d", seed)
			if most = max(most, a.Memory.Load()-occupied); q.Learned != nil && q.Learned.Limits() {
				learned++
			}
			if q.sends != nil {
				logs++
			}
			if occupied > 0 && len(q.Estimates) == 0 && q.Learned == nil {
				none++
			}
		}
		a.Memory.Release(q.DropAll())
		require.Equal(t, occupied, a.Memory.Load(), "seed %d", seed)
	}
	require.NotZero(t, logs)
	require.NotZero(t, learned)
	require.NotZero(t, none)
	require.Greater(t, most, 4*EstimateBytes)
}

// later returns now, or the latest time of q.
func later(now time.Time, q *Quota) time.Time {
	if q.LastGranted.After(now) {
		return q.LastGranted
	}
	return now
}

// applyPeers applies an update of another process.
func applyPeers(q *Quota, r *rand.Rand, now time.Time) {
	switch r.IntN(5) {
	case 0:
		q.HeldElsewhere(now.Add(time.Duration(r.IntN(3000))*ms), r.IntN(2) > 0, r.IntN(2) > 0, now)
	case 1:
		q.ReleasedElsewhere(now.Add(-ms), now)
	case 2:
		q.TestRejectedElsewhere(s, now)
	case 3:
		q.ProbedElsewhere(now)
	default:
		q.ApplyLimits([]throttle.RemoteLimit{{Name: fmt.Sprint(r.IntN(3)), Limit: 10, Remaining: r.Int64N(11), ResetAfter: time.Minute}}, now)
	}
}

// A logServer states one limit as a sliding log, and sometimes others.
type logServer struct{ used map[int]int }

func (l *logServer) feedback(r *rand.Rand, rejecting int, now time.Time) (f throttle.Feedback) {
	second := int(now.Unix())
	l.used[second]++
	sum, oldest, since := 0, second, second-60
	if second/300%2 == 1 { // windows of a minute
		since = second - second%60 - 1
	}
	for at, n := range l.used {
		if at > since {
			sum, oldest = sum+n, min(oldest, at)
		}
	}
	switch k := r.IntN(10); {
	case rejecting == 2 && k > 0, k == 1:
		f = []throttle.Feedback{bare, stated(2 * s), unavailable(s)}[r.IntN(3)]
	case rejecting == 1 && k > 6, k == 2:
		f = []throttle.Feedback{failed, dropped, canceled}[r.IntN(3)]
	}
	if r.IntN(3) > 0 {
		f.RemoteLimits = append(f.RemoteLimits, throttle.RemoteLimit{Limit: 500, Remaining: int64(max(500-sum, 0)), Per: time.Minute, ResetAfter: time.Duration(oldest+60-second) * s})
	}
	if r.IntN(4) == 0 {
		f.RemoteLimits = append(f.RemoteLimits, throttle.RemoteLimit{
			Name: fmt.Sprint(r.IntN(12)), Limit: r.Int64N(20), Remaining: r.Int64N(20), RemainingUnknown: r.IntN(5) == 0,
			ResetAfter: time.Duration(r.IntN(3)) * s, Unit: []string{"", "tokens", statedlimit.UnitConcurrent}[r.IntN(3)],
		})
	}
	return f
}
