package quota

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/model"
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
		"after an abandoned one":     {hold.Hold{Abandoned: true}, false, 9, wait, wait + delay, 1, true},
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
		q.Hold, q.shared.follows, q.InFlight.Sent = tt.hold, tt.follows, 3
		if q.Hold.Until = now.Add(wait); tt.hold.LastSent > 0 || !tt.hold.Active {
			q.Hold.Until = now
		}
		q.applyHold(&Update{Kind: UpdateHold, Stated: true, Sender: tt.sender, Wait: tt.wait}, now)
		require.Equal(t, tt.until, q.Hold.Until.Sub(now), name)
		require.Equal(t, tt.rejections, q.Hold.Rejections, name)
		require.Equal(t, tt.moved || tt.follows, q.shared.follows, name)
		require.Equal(t, tt.wait > 0, q.shared.held, "%s: other processes know it", name)
		if isNew := tt.rejections > tt.hold.Rejections; isNew {
			require.True(t, q.Hold.Active && q.Hold.RejectedAt.Equal(now) && q.Hold.LastSent == 3, name)
			require.False(t, q.Hold.Abandoned, name)
			require.Nil(t, q.Inference, name)
		}
	}
	_, q, now := sharedQuota(t, .5)
	q.Account.Full = false
	q.applyHold(&Update{Wait: wait}, now)
	require.False(t, q.Hold.Active, "an estimate of another process")
	q.applyHold(&Update{Wait: wait, Stated: true}, now)
	require.True(t, q.Hold.Active)
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
		q.InFlight.Add()
		q.Hold = hold.Hold{Active: tt.active, Until: now.Add(tt.until), LastSent: 1}
		if tt.own {
			q.InFlight.Add()
		}
		q.applyProbe(now)
		require.Equal(t, tt.want, q.Hold.Until.Sub(now), name)
		require.Equal(t, tt.active && !tt.own, q.shared.heldUntil.Equal(q.Hold.Until), name)
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
		q.Hold = tt.hold
		q.Hold.RejectedAt, q.Hold.Until = probed.Add(-tt.rejected), now.Add(tt.until)
		q.shared.follows, q.shared.held = true, true
		require.Equal(t, tt.released, q.applyRelease(probed, now), name)
		require.Equal(t, !tt.released, q.shared.follows, name)
		require.Equal(t, tt.hold.Active && !tt.released, q.Hold.Active, name)
		require.Equal(t, !tt.released, q.shared.held, name)
		if want := min(tt.until, 0); tt.released {
			require.Equal(t, want, q.Hold.Until.Sub(now), name)
		}
	}
	_, q, now := sharedQuota(t, .5)
	q.Inference = &model.Inference{Loop: learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 5}}
	q.Hold = hold.Hold{Active: true, RejectedAt: now}
	require.True(t, q.applyRelease(now, now))
	require.Equal(t, 100*time.Millisecond, q.Inference.Loop.Next.Sub(now), "processes do not send at the same time")
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
		q.Estimates = []statedlimit.Estimate{{Limit: 10, Remaining: 8, At: now.Add(-time.Second), Reset: now.Add(time.Minute)}}
		if tt.over {
			q.Estimates[0].Reset = now
		}
		q.endpoint.apply(Update{Kind: UpdateLimits, Limits: []throttle.RemoteLimit{{Limit: 10, Remaining: 7, ResetAfter: tt.reset}}}, now)
		e := &q.Estimates[0]
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
	require.Len(t, known.Estimates, 1)
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3, Route: route, Wait: time.Minute}, now))
	require.True(t, known.Hold.Active)
	require.False(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route}, now), "the hold ends much later")
	known.Hold.Until = now
	require.True(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route, Wait: 0}, now))
	require.False(t, known.Hold.Active)
	ep.unlimited.Store(true)
	for range 2 {
		ep.apply(Update{Kind: UpdateRejections, Sender: 3, Route: route, Rejections: 5}, now)
	}
	require.False(t, ep.unlimited.Load())
	require.True(t, known.Hold.Active, "evidence")
	require.True(t, known.Hold.Estimated)
}
