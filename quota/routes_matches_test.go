package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
)

// The most requests of a quota that were in flight together are remembered for ten seconds.
func TestEndpoint_remembersThePeakInFlight(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		peak int64
		age  time.Duration
		want int64 // three are in flight
	}{
		"fewer before":                 {2, time.Second, 3},
		"as many":                      {3, time.Second, 3},
		"more before":                  {4, 10 * time.Second, 4},
		"more than ten seconds before": {4, 10*time.Second + 1, 3},
	} {
		req := request(t, users)
		ep := (&Tracker{}).endpointOf(req)
		q := ep.unknown.Load()
		for range 3 {
			q.InFlight.Add()
		}
		ep.peak, ep.peakAt = tt.peak, now.Add(-tt.age)
		f := throttle.Feedback{Now: now, RemoteLimits: []throttle.RemoteLimit{{Limit: 10, Remaining: 5, ResetAfter: time.Minute}}}
		require.NotNil(t, ep.quotaOfResponse(ep.route(req), req, q, &f), name)
		require.Equal(t, tt.want, ep.peak, name)
		require.Equal(t, tt.want == 3, ep.peakAt.Equal(now), name)
	}
}

// If there is no memory for a route, it replaces another one. If there is none, it is not remembered.
func TestEndpoint_remembersRoutesWithinItsMemory(t *testing.T) {
	ep := (&Tracker{}).endpointOf(request(t, users))
	q := ep.unknown.Load()
	ep.Memory.Store(model.MaxBytes)
	ep.rememberRoute(7, q)
	require.Empty(t, ep.routes, "there is no memory")
	ep.Memory.Store(model.MaxBytes - routeBytes)
	ep.rememberRoute(7, q)
	require.Equal(t, map[uint64]*quota{7: q}, ep.routes)
	require.EqualValues(t, model.MaxBytes, ep.Memory.Load())
	ep.rememberRoute(7, q)
	require.EqualValues(t, model.MaxBytes, ep.Memory.Load(), "it is known")
	ep.rememberRoute(8, q)
	require.Equal(t, map[uint64]*quota{8: q}, ep.routes, "it replaces the other one")
	require.EqualValues(t, model.MaxBytes, ep.Memory.Load())
	ep.Memory.Store(0)
	for i := range uint64(2 * maxRoutes) {
		ep.rememberRoute(100+i, q)
	}
	require.Len(t, ep.routes, maxRoutes)
	require.EqualValues(t, (maxRoutes-1)*routeBytes, ep.Memory.Load())
}
