package quota

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
)

// A host whose quotas are small has one for each route, too, of which nothing is known: it admits one
// request at a time.
func TestEndpoint_addsUnstatedQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, _ := small(t, 3)
		q, ok := tr.Demand(request(t, routeURL(100))).Limiter.(*smallQuota)
		require.True(t, ok)
		require.EqualValues(t, []int32{1, 1}, []int32{q.limit, q.remaining})
		require.Zero(t, q.name)
		require.False(t, q.statesNothing())
		d, err := q.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.EqualValues(t, 1, d.Limit)
		d, err = q.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK, "one is in flight")
	})
}

// If there is no memory, the small quota that was used least recently is dropped, but none that holds
// requests.
func TestEndpoint_dropsTheSmallQuotaUsedLeastRecently(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		change func(all []smallRoute)
		gone   uint64 // route; 0: none
	}{
		"the first":            {func([]smallRoute) {}, 1},
		"the second is older":  {func(all []smallRoute) { all[1].quota.lastUsed = 0 }, 2},
		"the last is older":    {func(all []smallRoute) { all[3].quota.lastUsed = 0 }, 4},
		"they are equally old": {func(all []smallRoute) { all[1].quota.lastUsed = 1 }, 1},
		"the first is in use":  {func(all []smallRoute) { all[0].quota.open = 1 }, 2},
		"the first is used up": {func(all []smallRoute) { all[0].quota.remaining = 0 }, 2},
		"the first has reset":  {func(all []smallRoute) { all[0].quota.remaining, all[0].quota.reset = 0, time.Minute }, 1},
		"one remains":          {func(all []smallRoute) { all[0].quota.remaining = 1 }, 1},
		"all of them are used up": {func(all []smallRoute) {
			for _, r := range all {
				r.quota.remaining = 0
			}
		}, 0},
	} {
		ep := (&Tracker{}).endpointOf(request(t, users))
		ep.small = &smallQuotas{began: now.Add(-time.Minute)}
		for i := range uint64(4) {
			ep.addSmall(i+1, &smallQuota{endpoint: ep, limit: 9, remaining: 5, reset: time.Minute + 1, lastUsed: uint32(i) + 1}, now)
		}
		tt.change(ep.small.routes)
		ep.Memory.Store(model.MaxBytes)
		q := &smallQuota{endpoint: ep}
		ep.addSmall(9, q, now)
		require.Len(t, ep.small.routes, 4, name)
		_, known := ep.small.search(9)
		require.Equal(t, tt.gone > 0, known, name)
		if tt.gone > 0 {
			_, known = ep.small.search(tt.gone)
			require.False(t, known, name)
		}
		for i := range 3 {
			require.Less(t, ep.small.routes[i].route, ep.small.routes[i+1].route, "%s: they are in order", name)
		}
	}
}
