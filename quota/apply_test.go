package quota

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// sharedQuota returns the quota of users in a Tracker that shares over nothing, whose clock is stopped
// at now and whose random numbers are all random.
func sharedQuota(t *testing.T, random float64) (tr *Tracker, q *quota, now time.Time) {
	now = time.Unix(1_700_000_000, 0)
	tr = &Tracker{Exchange: newExchange(silentBus{}, secret, stopped(now)), Clock: stopped(now), Rand: func() float64 { return random }}
	ep := tr.endpointOf(request(t, users))
	require.True(t, ep.endFetch(), "requests have waited")
	require.False(t, ep.endFetch())
	return tr, ep.unknown.Load(), now
}

// A hold of another process begins a hold that ends 50 to 250 ms later. Of two processes with a hold,
// the one with the smaller identifier sends the probe.
func TestQuota_appliesHoldsOfOthers(t *testing.T) {
	const wait, delay = 10 * time.Second, 150 * time.Millisecond
	for name, tt := range map[string]struct {
		hold       hold.Hold
		follows    bool
		sender     uint64 // 5 is this process
		wait       time.Duration
		until      time.Duration
		rejections int
		moved      bool // the hold is that of the other process
	}{
		"no hold":                    {hold.Hold{}, false, 9, wait, wait + delay, 1, true},
		"no hold, over":              {hold.Hold{}, false, 9, 0, 0, 0, false},
		"hold, larger sender":        {hold.Hold{Active: true, Rejections: 3}, false, 9, wait, wait, 3, false},
		"hold, smaller sender":       {hold.Hold{Active: true, Rejections: 3}, false, 4, wait, wait + delay, 3, true},
		"hold, this sender":          {hold.Hold{Active: true, Rejections: 3}, false, 5, wait, wait, 3, false},
		"follows, smaller sender":    {hold.Hold{Active: true, Rejections: 3}, true, 4, wait, wait, 3, false},
		"hold that ends later":       {hold.Hold{Active: true, Rejections: 3}, false, 4, wait - time.Second, wait + delay, 3, true},
		"hold that ends earlier":     {hold.Hold{Active: true, Rejections: 3}, false, 9, wait + statedlimit.Tolerance + 1, wait + statedlimit.Tolerance + 1 + delay, 3, true},
		"hold that ends not earlier": {hold.Hold{Active: true, Rejections: 3}, false, 9, wait + statedlimit.Tolerance, wait, 3, false},
		"hold that is being probed":  {hold.Hold{Active: true, Rejections: 3, LastSent: 7}, false, 9, wait, wait + delay, 4, true},
	} {
		tr, q, now := sharedQuota(t, .5)
		tr.sharing.self = 5
		q.hold, q.shared.follows, q.inFlight.Sent = tt.hold, tt.follows, 3
		if q.hold.Until = now.Add(wait); tt.hold.LastSent > 0 || !tt.hold.Active {
			q.hold.Until = now
		}
		q.applyHold(&Update{Kind: UpdateHold, Stated: true, Sender: tt.sender, Wait: tt.wait}, now)
		require.Equal(t, tt.until, q.hold.Until.Sub(now), name)
		require.Equal(t, tt.rejections, q.hold.Rejections, name)
		require.Equal(t, tt.moved || tt.follows, q.shared.follows, name)
		require.Equal(t, tt.wait > 0, q.shared.held, "%s: other processes know it", name)
		if isNew := tt.rejections > tt.hold.Rejections; isNew {
			require.True(t, q.hold.Active && q.hold.RejectedAt.Equal(now) && q.hold.LastSent == 3, name)
			require.Nil(t, q.inference, name)
		}
	}
	_, q, now := sharedQuota(t, .5)
	q.account.Full = false
	q.applyHold(&Update{Wait: wait}, now)
	require.False(t, q.hold.Active, "an estimate of another process")
	q.applyHold(&Update{Wait: wait, Stated: true}, now)
	require.True(t, q.hold.Active)
}

// The probe of another process holds requests for one to two seconds, unless there is an own probe.
func TestQuota_appliesProbesOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		active, own bool
		until, want time.Duration
	}{
		"hold":               {true, false, 0, 1500 * time.Millisecond},
		"hold that is later": {true, false, 2 * time.Second, 2 * time.Second},
		"own probe":          {true, true, 0, 0},
		"no hold":            {false, false, 0, 0},
	} {
		_, q, now := sharedQuota(t, .5)
		q.inFlight.Add()
		q.hold = hold.Hold{Active: tt.active, Until: now.Add(tt.until), LastSent: 1}
		if tt.own {
			q.inFlight.Add()
		}
		q.applyProbe(now)
		require.Equal(t, tt.want, q.hold.Until.Sub(now), name)
		require.Equal(t, tt.active && !tt.own, q.shared.heldUntil.Equal(q.hold.Until), name)
	}
}

// An accepted probe of another process ends a hold, but not one that began after it was sent or that
// ends more than three seconds later.
func TestQuota_appliesReleasesOfOthers(t *testing.T) {
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
		_, q, now := sharedQuota(t, .5)
		probed := now.Add(-time.Second)
		q.hold = tt.hold
		q.hold.RejectedAt, q.hold.Until = probed.Add(-tt.rejected), now.Add(tt.until)
		q.shared.follows, q.shared.held = true, true
		require.Equal(t, tt.released, q.applyRelease(probed, now), name)
		require.Equal(t, !tt.released, q.shared.follows, name)
		require.Equal(t, tt.hold.Active && !tt.released, q.hold.Active, name)
		require.Equal(t, !tt.released, q.shared.held, name)
		if want := min(tt.until, 0); tt.released {
			require.Equal(t, want, q.hold.Until.Sub(now), name)
		}
	}
	_, q, now := sharedQuota(t, .5)
	q.inference = &inference{loop: learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 5}}
	q.hold = hold.Hold{Active: true, RejectedAt: now}
	require.True(t, q.applyRelease(now, now))
	require.Equal(t, 100*time.Millisecond, q.inference.loop.Next.Sub(now), "processes do not send at the same time")
}

// A process that was rejected is one that uses the quota. Its evidence may change what Events report.
func TestEndpoint_appliesRejectionsOfOthers(t *testing.T) {
	tr, q, now := sharedQuota(t, .5)
	var limits []string
	events := &Events{Hold: func(h HoldInfo) { limits = append(limits, h.Limit) }}
	tr.Listen(events)
	q.endpoint.applyRejections(&Update{Sender: 9, Rejections: 1}, now)
	tr.listeners.Load().deliver()
	require.Equal(t, 1, q.shared.peers.Len())
	require.Equal(t, []string{"api.test: slow start"}, limits)
	runtime.KeepAlive(events)
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
		require.Equal(t, tt.stop, q.addEvidence(tt.rejections, learnedlimit.AcceptedSpan{}, now), name)
		require.Equal(t, tt.cut, q.inference.cut.MaxInFlight > 0, name)
		if tt.rejections == math.MaxInt {
			require.LessOrEqual(t, q.inference.evidence.Total, 8, name)
		}
		require.False(t, q.inference.evidence.ImpliesLimit(false, q.roundTrip(), now), "%s: it begins anew", name)
	}
	q := modelAt(.5)
	q.addEvidence(1, learnedlimit.AcceptedSpan{}, now)
	l := &q.inference.loop
	l.BeginAfterStop(throttle.CauseUnstated, false, learnedlimit.AcceptedSpan{}, now, now, now, 4, 0)
	q.inference.successesInRow = 3
	require.False(t, q.addEvidence(9, learnedlimit.AcceptedSpan{}, now))
	require.InDelta(t, 4, l.FiniteGoal(), 0, "see TestRateLoop_rejectedElsewhere")
	require.Zero(t, q.inference.successesInRow)
	q = modelAt(.5)
	q.hold.Active = true
	require.False(t, q.addEvidence(9, learnedlimit.AcceptedSpan{}, now), "it is held")
	q = modelAt(.5)
	q.account.Full = false
	require.False(t, q.addEvidence(9, learnedlimit.AcceptedSpan{}, now))
	require.Nil(t, q.inference)
}

// What a quota has not counted itself, because the host was unlimited, is what was accepted before.
func TestQuota_evidenceOfOthersBeginsWithWhatWasAccepted(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, granted := range map[string]time.Duration{"counted": 1, "not counted": 0} {
		q := modelAt(.5)
		before := learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: 40}
		q.lastGranted = before.Since.Add(granted)
		q.addEvidence(1, before, now)
		require.Equal(t, granted == 0, q.span == before, "%s: %v", name, q.span)
	}
}

// knownLimits returns what other processes know if they know limits.
func knownLimits(limits ...statedlimit.Estimate) (l peers.Limits) {
	l.Set(limits)
	return l
}

// Limits of other processes update the estimates. The reset of a window that is known does not move.
func TestQuota_appliesLimitsOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		reset, want time.Duration
		over        bool
	}{
		"in transmission": {time.Minute - statedlimit.Tolerance + 1, time.Minute, false},
		"later":           {time.Minute + statedlimit.Tolerance - 1, time.Minute, false},
		"another window":  {time.Minute + statedlimit.Tolerance, time.Minute + statedlimit.Tolerance, false},
		"next window":     {time.Minute, time.Minute, true},
	} {
		_, q, now := sharedQuota(t, .5)
		q.estimates = []statedlimit.Estimate{{Limit: 10, Remaining: 8, At: now.Add(-time.Second), Reset: now.Add(time.Minute)}}
		if tt.over {
			q.estimates[0].Reset = now
		}
		q.endpoint.apply(Update{Kind: UpdateLimits, Limits: []throttle.RemoteLimit{{Limit: 10, Remaining: 7, ResetAfter: tt.reset}}}, now)
		e := &q.estimates[0]
		require.Equal(t, []int64{7, int64(tt.want)}, []int64{e.Remaining, int64(e.Reset.Sub(now))}, name)
		require.Equal(t, knownLimits(statedlimit.Estimate{Remaining: 7, Reset: e.Reset}), q.shared.limits, name)
	}
}

// The processes of a quota are known until three seconds after the end of a hold or window, at most for
// a minute.
func TestQuota_dropsPeers(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		u    Update
		want time.Duration
	}{
		"join":         {Update{Kind: UpdateJoin, Wait: time.Second}, 3 * time.Second},
		"hold":         {Update{Kind: UpdateHold, Wait: time.Second}, 4 * time.Second},
		"limit":        {Update{Limits: []throttle.RemoteLimit{{ResetAfter: time.Second}, {ResetAfter: 5 * time.Second}, {}}}, 8 * time.Second},
		"long":         {Update{Kind: UpdateHold, Wait: 57 * time.Second}, time.Minute},
		"longer":       {Update{Kind: UpdateHold, Wait: time.Hour}, time.Minute},
		"hold, longer": {Update{Kind: UpdateHold, Wait: 9 * time.Second, Limits: []throttle.RemoteLimit{{ResetAfter: 5 * time.Second}}}, 12 * time.Second},
	} {
		var s sharedState
		tt.u.Sender = 7
		s.addPeer(&tt.u, now)
		s.addPeer(&Update{Sender: 7}, now)
		require.Equal(t, 1, s.peers.Drop(now.Add(tt.want-1)), name)
		require.Zero(t, s.peers.Drop(now.Add(tt.want)), name)
	}
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
		q.peers = new(peers.Set)
		q.estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 90, Reset: now.Add(time.Minute)}, {Limit: 100, Remaining: tt.left, Reset: now.Add(time.Minute)}}
		for i := range tt.peers {
			q.peers.Add(uint64(i), 0, now)
		}
		q.inFlight.Open = tt.open
		wait, ok := q.leaveToPeers(now)
		require.Equal(t, tt.ok, ok, name)
		require.Equal(t, tt.wait, wait, name)
		for range 2 {
			_, ok = q.leaveToPeers(now.Add(3*time.Second - 1))
			require.Equal(t, tt.ok, ok, name)
		}
		_, ok = q.leaveToPeers(now.Add(3 * time.Second))
		require.True(t, ok, "%s: no peer any longer", name)
		require.Zero(t, q.peers.Len(), name)
	}
	for name, change := range map[string]func(q *modelQuota, e *statedlimit.Estimate){
		"hold":        func(q *modelQuota, e *statedlimit.Estimate) { q.hold.Until = e.Reset },
		"probe":       func(_ *modelQuota, e *statedlimit.Estimate) { e.Probe = true },
		"concurrency": func(_ *modelQuota, e *statedlimit.Estimate) { *e = concurrentEstimate(100, 1, e.Reset) },
		"over":        func(_ *modelQuota, e *statedlimit.Estimate) { e.Reset = e.Reset.Add(-time.Minute) },
		"no limit":    func(q *modelQuota, _ *statedlimit.Estimate) { q.estimates = nil },
	} {
		q := modelAt(0)
		q.peers = new(peers.Set)
		q.estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
		q.peers.Add(1, 0, now)
		_, ok := q.leaveToPeers(now)
		require.False(t, ok, name)
		change(q, &q.estimates[0])
		_, ok = q.leaveToPeers(now)
		require.True(t, ok, name)
	}
	draws := 0
	const every = 50 * time.Millisecond
	q := modelAt(0)
	q.peers = new(peers.Set)
	q.account.Random = func() float64 { draws++; return 0 }
	q.estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
	q.peers.Add(1, 0, now)
	for after, want := range []int{1, 1, 2, 2} {
		at := now.Add(time.Duration(after) * every / 2)
		wait, ok := q.leaveToPeers(at)
		require.False(t, ok)
		require.Equal(t, want, draws)
		require.Equal(t, every-time.Duration(after%2)*every/2, wait)
	}
}

// An update of another process concerns the quota of its route, which may be new, and ends the
// freedom of an unlimited host, unless another process only joins.
func TestEndpoint_appliesUpdates(t *testing.T) {
	_, q, now := sharedQuota(t, .5)
	ep := q.endpoint
	route := ep.route(request(t, users))
	limits := []throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 7, ResetAfter: time.Minute}}
	require.False(t, ep.apply(Update{Kind: UpdateJoin, Sender: 3}, now))
	require.Equal(t, 1, q.shared.peers.Len())
	ep.unlimited.Store(true)
	ep.apply(Update{Kind: UpdateJoin, Sender: 4}, now)
	require.True(t, ep.unlimited.Load())
	require.False(t, ep.statesLimits.Load())
	require.True(t, ep.apply(Update{Kind: UpdateLimits, Sender: 3, Route: route, Limits: limits}, now), "a window may have begun")
	require.False(t, ep.unlimited.Load())
	require.True(t, ep.statesLimits.Load())
	known, ok := ep.lookUp(route, nil)
	require.True(t, ok)
	require.Len(t, known.estimates, 1)
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3, Route: route, Wait: time.Minute}, now))
	require.True(t, known.hold.Active)
	require.False(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route}, now), "the hold ends much later")
	known.hold.Until = now
	require.True(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route, Wait: 0}, now))
	require.False(t, known.hold.Active)
	ep.unlimited.Store(true)
	for range 2 {
		ep.apply(Update{Kind: UpdateRejections, Sender: 3, Route: route, Rejections: 5}, now)
	}
	require.False(t, ep.unlimited.Load())
	require.True(t, known.hold.Active, "evidence")
	require.True(t, known.hold.Estimated)
}
