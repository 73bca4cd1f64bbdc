package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// The state of a quota is published if it differs from what other processes know.
func TestQuota_publishesChanges(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(time.Minute)
	for name, tt := range map[string]struct {
		hold  hold
		known sharedState
		want  Update
	}{
		"nothing":              {hold{}, sharedState{}, Update{}},
		"hold":                 {hold{active: true, until: end}, sharedState{}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"estimated hold":       {hold{active: true, until: end, estimated: true}, sharedState{}, Update{Kind: UpdateHold, Wait: time.Minute}},
		"hold that is over":    {hold{active: true, until: now.Add(-1)}, sharedState{}, Update{Kind: UpdateHold, Stated: true}},
		"known hold":           {hold{active: true, until: end}, sharedState{held: true, heldUntil: end}, Update{}},
		"longer":               {hold{active: true, until: end}, sharedState{held: true, heldUntil: end.Add(-tolerance - 1)}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"hardly longer":        {hold{active: true, until: end}, sharedState{held: true, heldUntil: end.Add(-tolerance)}, Update{}},
		"another rejection":    {hold{active: true, until: end, rejectedAt: now}, sharedState{held: true, heldUntil: end, heldSince: now.Add(-1)}, Update{Kind: UpdateHold, Wait: time.Minute, Stated: true}},
		"the same rejection":   {hold{active: true, until: end, rejectedAt: now}, sharedState{held: true, heldUntil: end, heldSince: now}, Update{}},
		"release":              {hold{}, sharedState{held: true}, Update{Kind: UpdateRelease, Wait: 2 * time.Second}},
		"release of a restart": {hold{rejectedAt: now, until: end}, sharedState{held: true, heldSince: now}, Update{Kind: UpdateRelease, Wait: 2 * time.Second}},
	} {
		known := tt.known
		q := quota{hold: tt.hold, shared: &known, lastGranted: now.Add(-2 * time.Second)}
		require.Zero(t, q.newState(now), "%s: no response has concerned it", name)
		known.route = 7
		if tt.want.Kind != UpdateFetched {
			tt.want.Route = 7
		}
		require.Equal(t, tt.want, q.newState(now), name)
		require.Equal(t, []any{tt.hold.active, tt.hold.rejectedAt, tt.hold.until}, []any{known.held, known.heldSince, known.heldUntil}, name)
		require.Equal(t, tt.want.Kind != UpdateFetched, known.limitsAt.Equal(now), name)
		require.Zero(t, q.newState(now), "%s: it is known now", name)
	}
}

// Limits are published again when a quarter of what is left was used, or the window is another one.
func TestQuota_publishesLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(time.Hour)
	for name, tt := range map[string]struct {
		known, left int64
		moved       time.Duration
		confirmed   bool
		other       string // name of the limit that is known
		want        bool
		after       int64 // known afterwards
	}{
		"a quarter":          {100, 75, 0, false, "", true, 100},
		"less":               {100, 76, 0, false, "", false, 100},
		"one of few":         {3, 2, 0, false, "", true, 3},
		"none of few":        {3, 3, 0, false, "", false, 3},
		"the last, of none":  {0, 0, 0, false, "", false, 0},
		"more":               {50, 60, 0, false, "", false, 60},
		"another window":     {100, 100, tolerance + 1, false, "", true, 100},
		"not another window": {100, 100, tolerance, false, "", false, 100},
		"in flight":          {100, 10, 0, true, "", false, 100},
		"another limit":      {100, 100, 0, false, "b", true, 100},
	} {
		q := quota{shared: &sharedState{limitsAt: now.Add(-publishEvery), limits: []knownLimit{{name: tt.other, remaining: tt.known, reset: end.Add(-tt.moved)}}}}
		q.estimates = []estimate{{limit: 100, remaining: tt.left, reset: end, concurrency: concurrencyTest{confirmed: tt.confirmed}}}
		require.Equal(t, tt.want, q.limitsChanged(now), name)
		require.Equal(t, tt.after, q.shared.limits[0].remaining, name)
		q.shared.limitsAt = now.Add(-publishEvery + 1)
		require.False(t, q.limitsChanged(now), "%s: limits were published lately", name)
	}
	q := quota{shared: &sharedState{limitsAt: now.Add(-time.Hour)}}
	require.False(t, q.limitsChanged(now), "there is no limit")

	q.estimates = []estimate{
		{name: "a", limit: 100, remaining: 7, per: time.Hour, reset: end},
		{name: "b", limit: 10, remaining: 6, reset: now},
		{name: "c", limit: 5, remaining: 4, reset: end, concurrency: concurrencyTest{confirmed: true}},
	}
	q.shared.limits = []knownLimit{{name: "old"}}
	require.Equal(t, []throttle.RemoteLimit{{Name: "a", Limit: 100, Remaining: 7, Per: time.Hour, ResetAfter: time.Hour}}, q.setLimits(now))
	require.Equal(t, []knownLimit{{"a", time.Hour, 7, end}, {"b", 0, 6, now}, {"c", 0, 4, end}}, q.shared.limits)
}

// Rejections that state nothing are published every five milliseconds, at most a hundred in an update.
func TestQuota_publishesRejections(t *testing.T) {
	tr, q, now := sharedQuota(t, .5)
	e := &recordingExchange{}
	tr.Exchange = e
	for i := range 2 * maxRejections {
		q.addRejection(uint64(i))
	}
	q.publish(now)
	require.Equal(t, []Update{{Kind: UpdateRejections, Route: 2*maxRejections - 1, Rejections: maxRejections}}, e.take())
	q.addRejection(3)
	q.publish(now.Add(publishEvery - 1))
	require.Empty(t, e.take())
	q.addRejection(4)
	q.publish(now.Add(publishEvery))
	require.Equal(t, []Update{{Kind: UpdateRejections, Route: 4, Rejections: 2}}, e.take())
	q.publish(now.Add(time.Second))
	require.Empty(t, e.take(), "nothing new")
}

// A probe is published once in 100 ms, and only if it is one.
func TestQuota_publishesProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		active   bool
		lastSent uint64
		since    time.Duration // since one was published
		dryRun   bool
		want     int
	}{
		"probe":            {true, 0, probeEvery, false, 1},
		"published lately": {true, 0, probeEvery - 1, false, 0},
		"dry run":          {true, 0, probeEvery, true, 0},
		"no hold":          {false, 0, probeEvery, false, 0},
		"no later request": {true, 1, probeEvery, false, 0},
	} {
		tr, q, now := sharedQuota(t, .5)
		e := &recordingExchange{}
		tr.Exchange = e
		q.hold = hold{active: tt.active, lastSent: tt.lastSent}
		q.shared.probedAt, q.shared.route = now.Add(-tt.since), 7
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
	q.estimates = []estimate{{limit: 100, remaining: 1, reset: now.Add(time.Minute)}}
	q.shared.peers.add(&Update{Sender: 1}, now)
	d, err := q.Reserve(t.Context(), throttle.Claim{Now: now})
	require.NoError(t, err)
	require.Equal(t, throttle.Decision{Policy: "api.test: quota", At: now, Wait: roundEvery, ServerImposed: true, Limit: 100, Remaining: 1, ResetAfter: time.Minute}, d, "left to a peer")
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
	hold := Update{Kind: UpdateHold, Stated: true, Sender: 1, Account: q.endpoint.id, Wait: time.Minute}
	own, unknown := hold, hold
	own.Sender, unknown.Account = tr.sharing.self, "another"
	for _, u := range []Update{own, unknown} {
		tr.sharing.receive(u)
		require.False(t, q.hold.active)
	}
	tr.sharing.receive(hold)
	require.True(t, q.hold.active)
}
