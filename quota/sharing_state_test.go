package quota

import (
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// The state of a quota is published if it differs from what other processes know.
func TestQuota_publishesChanges(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(time.Minute)
	for name, tt := range map[string]struct {
		hold  hold.Hold
		known sharedState
		want  Update
	}{
		"nothing":              {hold.Hold{}, sharedState{}, Update{}},
		"hold":                 {hold.Hold{Held: true, Until: end}, sharedState{}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"estimated hold":       {hold.Hold{Held: true}, sharedState{}, Update{Kind: UpdateHold}},
		"hold that is over":    {hold.Hold{Held: true, Until: now.Add(-1)}, sharedState{}, Update{Kind: UpdateHold, Stated: true}},
		"known hold":           {hold.Hold{Held: true, Until: end}, sharedState{held: true, heldUntil: end}, Update{}},
		"longer":               {hold.Hold{Held: true, Until: end}, sharedState{held: true, heldUntil: end.Add(-statedlimit.Tolerance - 1)}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"hardly longer":        {hold.Hold{Held: true, Until: end}, sharedState{held: true, heldUntil: end.Add(-statedlimit.Tolerance)}, Update{}},
		"another hold":         {hold.Hold{Held: true, Until: end, Since: now}, sharedState{held: true, heldUntil: end, heldSince: now.Add(-1)}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"the same hold":        {hold.Hold{Held: true, Until: end, Since: now}, sharedState{held: true, heldUntil: end, heldSince: now}, Update{}},
		"release":              {hold.Hold{}, sharedState{held: true}, Update{Kind: UpdateRelease, Wait: 2 * time.Second}},
		"release of a restart": {hold.Hold{Since: now, Until: end}, sharedState{held: true, heldSince: now}, Update{Kind: UpdateRelease, Wait: 2 * time.Second}},
	} {
		known := tt.known
		q := quota{endpoint: &endpoint{}, shared: &known, Quota: model.Quota{Hold: tt.hold, Units: model.Units{LastGranted: now.Add(-2 * time.Second)}}}
		require.Zero(t, q.newState(now), "%s: no response has concerned it", name)
		known.route = 7
		if tt.want.Kind != UpdateFetched {
			tt.want.Route = 7
		}
		require.Equal(t, tt.want, q.newState(now), name)
		require.Equal(t, []any{tt.hold.Held, tt.hold.Since, tt.hold.Until}, []any{known.held, known.heldSince, known.heldUntil}, name)
		require.Equal(t, tt.want.Kind != UpdateFetched, known.limitsAt.Equal(now), name)
		require.Zero(t, q.newState(now), "%s: it is known now", name)
	}
}

// Limits are published when they have changed, and once a second, but not every moment.
func TestQuota_publishesLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(time.Hour)
	q := quota{shared: &sharedState{limitsAt: now.Add(-time.Hour)}}
	require.False(t, q.limitsChanged(now), "there is no limit")
	q.Estimates = []statedlimit.Estimate{
		{Name: "a", Limit: 100, Remaining: 7, Per: time.Hour, Reset: end},
		{Name: "b", Limit: 10, Remaining: 6, Reset: now},
		concurrentEstimate(5, 4, end),
	}
	for after, want := range map[time.Duration]bool{publishEvery - 1: false, publishEvery: true} {
		q.shared.limitsAt = now.Add(-after)
		require.Equal(t, want, q.limitsChanged(now), after)
	}
	require.Equal(t, []throttle.RemoteLimit{{Name: "a", Limit: 100, Remaining: 7, Per: time.Hour, ResetAfter: time.Hour}}, q.setLimits(now))
	for after, want := range map[time.Duration]bool{publishEvery: false, joinEvery - 1: false, joinEvery: true} {
		q.shared.limitsAt = now.Add(-after)
		require.Equal(t, want, q.limitsChanged(now), "%v: they are known", after)
	}
}

// A test is published once in 100 ms, and only if it is one.
func TestQuota_publishesTests(t *testing.T) {
	for name, tt := range map[string]struct {
		held   bool
		since  time.Duration // since one was published
		dryRun bool
		want   int
	}{
		"test":             {true, probeEvery, false, 1},
		"published lately": {true, probeEvery - 1, false, 0},
		"dry run":          {true, probeEvery, true, 0},
		"no hold":          {false, probeEvery, false, 0},
	} {
		tr, q, now := sharedQuota(t, .5)
		e := &recordingExchange{}
		tr.Exchange = e
		q.shared.route = 7
		if tt.held {
			q.Hold.Begin(0, time.Time{}, now)
			d, err := q.Reserve(t.Context(), throttle.Claim{Now: now})
			require.NoError(t, err)
			require.False(t, d.OK, "the first test is sent after a round trip")
			now = q.NextTest()
		}
		q.shared.probedAt = now.Add(-tt.since)
		d, err := q.Reserve(t.Context(), throttle.Claim{Now: now, DryRun: tt.dryRun})
		require.NoError(t, err)
		require.True(t, d.OK, name)
		all := e.take()
		require.Len(t, all, tt.want, name)
		if tt.want == 1 {
			require.Equal(t, Update{Kind: UpdateProbe, Route: 7}, all[0], name)
			require.Equal(t, now, q.shared.probedAt, name)
		}
	}
	_, q, now := sharedQuota(t, 0)
	q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
	q.shared.peers.Add(1, 0, now)
	d, err := q.Reserve(t.Context(), throttle.Claim{Now: now})
	require.NoError(t, err)
	require.Equal(t, throttle.Decision{Policy: "api.test: quota", At: now, Wait: 50 * time.Millisecond, ServerImposed: true, Limit: 100, Remaining: 1, ResetAfter: time.Minute}, d, "left to a peer")
}

// A recordingExchange records what is published, without the sender and the account.
type recordingExchange struct {
	Exchange
	all []Update
}

func (e *recordingExchange) Publish(u Update) {
	u.Sender, u.Account = 0, ""
	e.all = append(e.all, u)
}

func (e *recordingExchange) take() (all []Update) {
	all, e.all = e.all, nil
	return all
}

// Updates of unknown accounts, and own ones, have no effect.
func TestSharing_receivesUpdates(t *testing.T) {
	tr, q, _ := sharedQuota(t, .5)
	held := new([]bool)
	events := &Events{Hold: func(h HoldInfo) { *held = append(*held, h.Held) }}
	tr.Listen(events)
	hold := Update{Kind: UpdateHold, Stated: true, Sender: 1, Account: q.endpoint.id, Wait: time.Minute}
	own, unknown := hold, hold
	own.Sender, unknown.Account = tr.sharing.self, "another"
	for _, u := range []Update{own, unknown} {
		tr.sharing.receive(u)
		require.False(t, q.Hold.Held)
	}
	tr.sharing.receive(hold)
	require.True(t, q.Hold.Held)
	require.Equal(t, []bool{true}, *held, "listeners are told")
	runtime.KeepAlive(events)
}

// Accounts of processes are the same if scheme, host and credentials are.
func TestSharing_identifiesAccounts(t *testing.T) {
	tr, q, _ := sharedQuota(t, .5)
	ids := map[string]bool{q.endpoint.id: true}
	for _, req := range []*http.Request{
		request(t, "http://api.test/"), request(t, "https://other.test/"), request(t, users, "Authorization", "one"), request(t, users, "Authorization", "two"),
	} {
		ids[tr.endpointOf(req).id] = true
	}
	require.Len(t, ids, 5)
	require.True(t, ids[tr.endpointOf(request(t, "https://api.test:443/")).id])
	other := &Tracker{Exchange: newExchange(silentBus{}, []byte("another"), nil)}
	require.NotEqual(t, q.endpoint.route(request(t, users)), other.endpointOf(request(t, users)).route(request(t, users)), "routes of other secrets")
	s := tr.sharing
	require.Equal(t, s.hash("a", "b"), s.hash("a", "b"))
	require.NotEqual(t, s.hash("ab"), s.hash("a", "b"))
	require.NotEqual(t, s.hash("a", "b"), s.hash("b", "a"))
}

// What a response states about the quota of another route than asked is published immediately.
func TestSharing_publishesQuotasOfOtherRoutes(t *testing.T) {
	tr, _, now := sharedQuota(t, .5)
	e := &recordingExchange{}
	for i, path := range []string{users, search, users} {
		tr.Feedback(request(t, path), tr.Demand(request(t, path)), quotaOf(path, "100", strconv.Itoa(50-20*i), "60"), nil, now, nil)
	}
	tr.Exchange = e
	now = now.Add(time.Second)
	tr.Feedback(request(t, users), tr.Demand(request(t, search)), quotaOf(users, "100", "5", "60"), nil, now, nil)
	all := e.take()
	require.Len(t, all, 1)
	require.Equal(t, UpdateLimits, all[0].Kind)
	require.EqualValues(t, 5, all[0].Limits[0].Remaining)
}
