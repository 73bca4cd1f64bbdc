package model

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A hold of another process begins a hold that ends 50 to 250 ms later. Of two processes with a hold,
// the one with the smaller identifier sends the probe.
func TestQuota_appliesHoldsOfOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const wait, delay = 10 * time.Second, 150 * time.Millisecond
	for name, tt := range map[string]struct {
		hold       hold.Hold
		follows    bool
		smaller    bool // the identifier of the other process
		wait       time.Duration
		until      time.Duration
		rejections int
		moved      bool // the hold is that of the other process
	}{
		"no hold":                    {hold.Hold{}, false, false, wait, wait + delay, 1, true},
		"after an abandoned one":     {hold.Hold{Abandoned: true}, false, false, wait, wait + delay, 1, true},
		"hold, larger sender":        {hold.Hold{Active: true, Rejections: 3}, false, false, wait, wait, 3, false},
		"hold, smaller sender":       {hold.Hold{Active: true, Rejections: 3}, false, true, wait, wait + delay, 3, true},
		"follows, smaller sender":    {hold.Hold{Active: true, Rejections: 3}, true, true, wait, wait, 3, false},
		"hold that ends later":       {hold.Hold{Active: true, Rejections: 3}, false, true, wait - time.Second, wait + delay, 3, true},
		"hold that ends earlier":     {hold.Hold{Active: true, Rejections: 3}, false, false, wait + statedlimit.Tolerance + 1, wait + statedlimit.Tolerance + 1 + delay, 3, true},
		"hold that ends not earlier": {hold.Hold{Active: true, Rejections: 3}, false, false, wait + statedlimit.Tolerance, wait, 3, false},
		"hold that is being probed":  {hold.Hold{Active: true, Rejections: 3, LastSent: 7}, false, false, wait, wait + delay, 4, true},
	} {
		q := modelAt(.5)
		q.Hold, q.follows, q.InFlight.Sent = tt.hold, tt.follows, 3
		if q.Hold.Until = now.Add(wait); tt.hold.LastSent > 0 || !tt.hold.Active {
			q.Hold.Until = now
		}
		require.True(t, q.HeldElsewhere(now.Add(tt.wait), true, tt.smaller, now), name)
		require.Equal(t, tt.until, q.Hold.Until.Sub(now), name)
		require.Equal(t, tt.rejections, q.Hold.Rejections, name)
		require.Equal(t, tt.moved || tt.follows, q.follows, name)
		if isNew := tt.rejections > tt.hold.Rejections; isNew {
			require.True(t, q.Hold.Active && q.Hold.RejectedAt.Equal(now) && q.Hold.LastSent == 3, name)
			require.False(t, q.Hold.Abandoned, name)
			require.Nil(t, q.Inference, name)
		}
	}
	q := modelAt(.5)
	q.Account.Full = false
	require.False(t, q.HeldElsewhere(now.Add(wait), false, true, now), "an estimate of another process")
	require.False(t, q.Hold.Active)
	require.True(t, q.HeldElsewhere(now.Add(wait), true, true, now))
	require.True(t, q.Hold.Active)
}

// The probe of another process holds requests for one to two seconds, unless there is an own probe.
func TestQuota_appliesProbesOfOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		active, own bool
		until, want time.Duration
	}{
		"hold":               {true, false, 0, 1500 * time.Millisecond},
		"hold that is later": {true, false, 2 * time.Second, 2 * time.Second},
		"own probe":          {true, true, 0, 0},
		"no hold":            {false, false, 0, 0},
	} {
		q := modelAt(.5)
		q.InFlight.Add()
		q.Hold = hold.Hold{Active: tt.active, Until: now.Add(tt.until), LastSent: 1}
		if tt.own {
			q.InFlight.Add()
		}
		require.Equal(t, tt.active && !tt.own, q.ProbedElsewhere(now), name)
		require.Equal(t, tt.want, q.Hold.Until.Sub(now), name)
	}
}

// An accepted probe of another process ends a hold, but not one that began after it was sent or that
// ends more than three seconds later.
func TestQuota_appliesReleasesOfOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	longest := 2*probeTime + statedlimit.Tolerance
	for name, tt := range map[string]struct {
		hold     hold.Hold
		rejected time.Duration // until the probe was sent
		until    time.Duration
		released bool
	}{
		"hold":             {hold.Hold{Active: true}, time.Second, 0, true},
		"at the same time": {hold.Hold{Active: true}, 0, 0, true},
		"began later":      {hold.Hold{Active: true}, -1, 0, false},
		"ends soon":        {hold.Hold{Active: true}, time.Second, longest, true},
		"ends later":       {hold.Hold{Active: true}, time.Second, longest + 1, false},
		"was over before":  {hold.Hold{Active: true}, time.Second, -time.Minute, true},
		"there was none":   {hold.Hold{}, time.Second, 0, false},
	} {
		q := modelAt(.5)
		probed := now.Add(-time.Second)
		q.Hold = tt.hold
		q.Hold.RejectedAt, q.Hold.Until = probed.Add(-tt.rejected), now.Add(tt.until)
		q.follows = true
		require.Equal(t, tt.released, q.ReleasedElsewhere(probed, now), name)
		require.Equal(t, !tt.released, q.follows, name)
		require.Equal(t, tt.hold.Active && !tt.released, q.Hold.Active, name)
		if want := min(tt.until, 0); tt.released {
			require.Equal(t, want, q.Hold.Until.Sub(now), name)
		}
	}
	q := modelAt(.5)
	q.Inference = &Inference{Loop: learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 5}}
	q.Hold = hold.Hold{Active: true, RejectedAt: now}
	require.True(t, q.ReleasedElsewhere(now, now))
	require.Equal(t, 100*time.Millisecond, q.Inference.Loop.Next.Sub(now), "processes do not send at the same time")
}

// A process has an equal part of half of what is left in flight, rounded at random. If that is none, it
// draws again after 50 ms.
func TestQuota_leavesUnitsToPeers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		left   int64
		peers  int
		open   int64
		random float64
		ok     bool
		wait   time.Duration
	}{
		"alone":               {1, 0, 5, 0, true, 0},
		"part":                {60, 9, 2, 0, true, 0},
		"all of the part":     {60, 9, 3, 0, false, 0},
		"rounded up":          {70, 9, 3, .5, true, 0},
		"rounded down":        {70, 9, 3, .49, false, 0},
		"none of the last":    {4, 9, 0, .79, false, 50 * time.Millisecond},
		"one of the last":     {4, 9, 0, .8, true, 0},
		"nothing is left":     {0, 9, 0, 0, true, 0},
		"one peer":            {4, 1, 0, 0, true, 0},
		"one peer, in flight": {4, 1, 1, 0, false, 0},
	} {
		q := modelAt(tt.random)
		q.Peers = new(peers.Set)
		q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 90, Reset: now.Add(time.Minute)}, {Limit: 100, Remaining: tt.left, Reset: now.Add(time.Minute)}}
		for i := range tt.peers {
			q.Peers.Add(uint64(i), 0, now)
		}
		q.InFlight.Open = tt.open
		wait, ok := q.leaveToPeers(now)
		require.Equal(t, tt.ok, ok, name)
		require.Equal(t, tt.wait, wait, name)
		for range 2 {
			_, ok = q.leaveToPeers(now.Add(3*time.Second - 1))
			require.Equal(t, tt.ok, ok, name)
		}
		_, ok = q.leaveToPeers(now.Add(3 * time.Second))
		require.True(t, ok, "%s: no peer any longer", name)
		require.Zero(t, q.Peers.Len(), name)
	}
	for name, change := range map[string]func(q *Quota, e *statedlimit.Estimate){
		"hold":        func(q *Quota, e *statedlimit.Estimate) { q.Hold.Until = e.Reset },
		"probe":       func(_ *Quota, e *statedlimit.Estimate) { e.Probe = true },
		"concurrency": func(_ *Quota, e *statedlimit.Estimate) { *e = concurrentEstimate(100, 1, e.Reset) },
		"over":        func(_ *Quota, e *statedlimit.Estimate) { e.Reset = e.Reset.Add(-time.Minute) },
		"no limit":    func(q *Quota, _ *statedlimit.Estimate) { q.Estimates = nil },
	} {
		q := modelAt(0)
		q.Peers = new(peers.Set)
		q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
		q.Peers.Add(1, 0, now)
		_, ok := q.leaveToPeers(now)
		require.False(t, ok, name)
		change(q, &q.Estimates[0])
		_, ok = q.leaveToPeers(now)
		require.True(t, ok, name)
	}
	draws := 0
	const every = 50 * time.Millisecond
	q := modelAt(0)
	q.Peers = new(peers.Set)
	q.Account.Random = func() float64 { draws++; return 0 }
	q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
	q.Peers.Add(1, 0, now)
	for after, want := range []int{1, 1, 2, 2} {
		at := now.Add(time.Duration(after) * every / 2)
		wait, ok := q.leaveToPeers(at)
		require.False(t, ok)
		require.Equal(t, want, draws)
		require.Equal(t, every-time.Duration(after%2)*every/2, wait)
	}
}

// concurrentEstimate returns an estimate of a limit of requests in flight, of which left may be begun.
func concurrentEstimate(limit, left int64, reset time.Time) statedlimit.Estimate {
	e := statedlimit.NewEstimate(throttle.RemoteLimit{Unit: statedlimit.UnitConcurrent}, false)
	e.Limit, e.Remaining, e.Reset = limit, left, reset
	return e
}

// Rejections of other processes are evidence. During a rate loop the rate does not grow for a while.
func TestQuota_addsEvidenceOfOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		rejections int
		stop, cut  bool
	}{
		"one": {1, false, true}, "three": {3, false, true}, "four of a new host": {4, true, false}, "many": {math.MaxInt, true, false}, "none": {-1, false, true},
	} {
		q := modelAt(.5)
		require.Equal(t, tt.stop, q.AddEvidence(tt.rejections, learnedlimit.AcceptedSpan{}, now), name)
		require.Equal(t, tt.cut, q.Inference.Cut.MaxInFlight > 0, name)
		if tt.rejections == math.MaxInt {
			require.LessOrEqual(t, q.Inference.Evidence.Total, 8, name)
		}
		require.False(t, q.Inference.Evidence.ImpliesLimit(false, q.roundTrip(), now), "%s: it begins anew", name)
	}
	q := modelAt(.5)
	q.AddEvidence(1, learnedlimit.AcceptedSpan{}, now)
	l := &q.Inference.Loop
	l.BeginAfterStop(throttle.CauseUnstated, false, learnedlimit.AcceptedSpan{}, now, now, now, 4, 0)
	q.Inference.successesInRow = 3
	require.False(t, q.AddEvidence(9, learnedlimit.AcceptedSpan{}, now))
	require.InDelta(t, 4, l.FiniteGoal(), 0, "see TestRateLoop_rejectedElsewhere")
	require.Zero(t, q.Inference.successesInRow)
	q = modelAt(.5)
	q.Hold.Active = true
	require.False(t, q.AddEvidence(9, learnedlimit.AcceptedSpan{}, now), "it is held")
	q = modelAt(.5)
	q.Account.Full = false
	require.False(t, q.AddEvidence(9, learnedlimit.AcceptedSpan{}, now))
	require.Nil(t, q.Inference)
}

// What a quota has not counted itself, because the host was unlimited, is what was accepted before.
func TestQuota_evidenceOfOthersBeginsWithWhatWasAccepted(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, granted := range map[string]time.Duration{"counted": 1, "not counted": 0} {
		q := modelAt(.5)
		before := learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: 40}
		q.LastGranted = before.Since.Add(granted)
		q.AddEvidence(1, before, now)
		require.Equal(t, granted == 0, q.Span == before, "%s: %v", name, q.Span)
	}
}

// A claim that leaves units to other processes waits for a response if one is to arrive.
func TestQuota_leavesUnitsUntilAResponse(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	q.Peers = new(peers.Set)
	q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 4, Reset: now.Add(time.Minute)}}
	q.Peers.Add(1, 0, now)
	q.InFlight.Open = 1
	wait, ok := q.leaveToPeers(now)
	require.False(t, ok)
	require.Zero(t, wait)
}

// A hold is an estimate if the process that was rejected has only evidence of it.
func TestQuota_holdsOfOthersAreStatedOrEstimated(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, stated := range []bool{true, false} {
		q := modelAt(0)
		q.Hold.Estimated = stated
		q.HeldElsewhere(now.Add(time.Second), stated, false, now)
		require.True(t, q.Hold.Active)
		require.Equal(t, !stated, q.Hold.Estimated)
	}
}
