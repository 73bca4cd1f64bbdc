package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
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

// Other processes know a hold that they have reported or ended. One that begins here is not known to them,
// whatever else they report.
func TestEndpoint_whichHoldsOtherProcessesKnow(t *testing.T) {
	own := hold.Hold{Suspected: true, Held: true, Latest: time.Unix(1_700_000_000, 0).Add(-time.Second), Until: time.Unix(1_700_000_000, 0).Add(time.Minute)}
	for name, tt := range map[string]struct {
		u     Update
		hold  hold.Hold
		known bool
	}{
		"a hold":                          {Update{Kind: UpdateHold, Stated: true, Wait: time.Minute}, hold.Hold{}, true},
		"the same hold":                   {Update{Kind: UpdateHold, Stated: true, Wait: time.Minute}, own, true},
		"a hold that is over":             {Update{Kind: UpdateHold, Stated: true}, own, false},
		"a probe":                         {Update{Kind: UpdateProbe}, own, true},
		"a probe after a hold that ended": {Update{Kind: UpdateProbe}, hold.Hold{}, false},
		"a release before its end":        {Update{Kind: UpdateRelease}, own, false},
		"limits":                          {Update{Kind: UpdateLimits}, own, false},
		"a join":                          {Update{Kind: UpdateJoin}, own, false},
	} {
		tr, q, now := sharedQuota(t, .5)
		q.Hold = tt.hold
		tt.u.Sender = tr.sharing.self - 1
		q.endpoint.apply(tt.u, now)
		require.Equal(t, tt.known, q.shared.held, name)
	}
	_, q, now := sharedQuota(t, .5)
	q.Hold, q.shared.held = hold.Hold{Suspected: true, Held: true, Until: now}, true
	require.True(t, q.endpoint.apply(Update{Kind: UpdateRelease}, now))
	require.False(t, q.shared.held, "it is over")
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

// An update of another process concerns the quota of its route, which may be new.
func TestEndpoint_appliesUpdates(t *testing.T) {
	_, q, now := sharedQuota(t, .5)
	ep := q.endpoint
	route := ep.route(request(t, users))
	limits := []throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 7, ResetAfter: time.Minute}}
	require.False(t, ep.apply(Update{Kind: UpdateJoin, Sender: 3}, now))
	require.Equal(t, 1, q.shared.peers.Len())
	ep.apply(Update{Kind: UpdateJoin, Sender: 4}, now)
	require.False(t, ep.statesLimits.Load())
	require.True(t, ep.apply(Update{Kind: UpdateLimits, Sender: 3, Route: route, Limits: limits}, now), "a window may have begun")
	require.True(t, ep.statesLimits.Load())
	known, ok := ep.lookUp(route, nil)
	require.True(t, ok)
	require.Len(t, known.Estimates, 1)
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3, Route: route, Wait: time.Minute}, now))
	require.True(t, known.Hold.Held)
	require.True(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route}, now), "an accepted test ends a hold before its time")
	require.False(t, known.Hold.Held)
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3, Route: route, Wait: time.Minute}, now))
	require.True(t, ep.apply(Update{Kind: UpdateRelease, Sender: 3, Route: route, Wait: 0}, now))
	require.False(t, known.Hold.Held)
}
