package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestTracker_declareHoldsFromTheFirstRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		limit    throttle.Limit
		mode     Mode
		server   func() server
		n        int
		rejected int
		elapsed  [2]time.Duration // minimum and maximum
	}{
		"window": {
			throttle.Limit{Count: 10, Per: time.Second}, Full,
			func() server { return fixedWindow(10, time.Second, false, false) },
			35, 0, [2]time.Duration{3 * time.Second, 3500 * time.Millisecond},
		},
		"burst": {
			throttle.Limit{Count: 600, Per: time.Minute, Burst: 5}, StatedOnly,
			func() server { return tokenBucket(10, 10, false) },
			35, 0, [2]time.Duration{3 * time.Second, 3500 * time.Millisecond},
		},
		"headers state a limit": {
			throttle.Limit{Count: 1, Per: time.Hour}, Full,
			func() server { return fixedWindow(100, time.Second, true, false) },
			35, 0, [2]time.Duration{0, time.Second},
		},
		"too high": {
			throttle.Limit{Count: 20, Per: time.Second}, Full,
			func() server { return fixedWindow(10, time.Second, false, false) },
			35, 24, [2]time.Duration{3 * time.Second, 6 * time.Second},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Tracker{Mode: tt.mode}
			require.NoError(t, tr.Declare("API.test:443", tt.limit))
			j := play(t, tr, tt.server(), tt.n, 8, 10*time.Millisecond)
			require.Zero(t, j.failed, "%s: %v", name, j)
			require.LessOrEqual(t, j.throttled, tt.rejected, "%s: %v", name, j)
			require.GreaterOrEqual(t, j.elapsed, tt.elapsed[0], "%s: %v", name, j)
			require.LessOrEqual(t, j.elapsed, tt.elapsed[1], "%s: %v", name, j)
		})
	}
}

func TestTracker_declareConcernsOneHost(t *testing.T) {
	tr := &Tracker{}
	require.NoError(t, tr.Declare("api.test", throttle.PerHour(1)))
	grants := func(url string) bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		d, err := tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Now: time.Unix(1e9, 0)})
		require.NoError(t, err)
		return d.OK
	}
	require.True(t, grants("https://api.test/a"))
	require.False(t, grants("https://api.test/b"))
	require.True(t, grants("https://other.test/a"))
	require.True(t, grants("https://other.test/a"))
	s := tr.Snapshot(0)
	for _, a := range s.Shown {
		if a.Host == "api.test" {
			require.Equal(t, []LimitSnapshot{{Unit: "requests", Size: 1, RemainingKnown: true, Per: time.Hour, Reset: time.Unix(1e9, 0).Add(time.Hour), Declared: true}}, a.Quotas[0].Limits)
		}
	}
}

func TestTracker_declareRejectsInvalidLimits(t *testing.T) {
	tr := &Tracker{}
	require.EqualError(t, tr.Declare("", throttle.PerSecond(1)), `quota: declare a limit of "": not a host`)
	require.ErrorContains(t, tr.Declare("https://api.test", throttle.PerSecond(1)), "not a host")
	require.ErrorContains(t, tr.Declare("api.test", throttle.Limit{}), "quota: declare a limit of \"api.test\": ")
}
