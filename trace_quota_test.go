package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTrace_reportsHoldsAndLimits checks that Trace.Hold and Trace.LimitLearned report
// each hold and estimate, with the name of the limit that errors contain too.
func TestTrace_reportsHoldsAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holds []quota.HoldInfo
		var learned []quota.LimitLearnedInfo
		rejected := 0
		s := &simulatedServer{rtt: time.Millisecond, serve: func(time.Time) (int, http.Header) {
			h := http.Header{"X-Ratelimit-Limit": {"100"}, "X-Ratelimit-Remaining": {"99"}, "X-Ratelimit-Reset": {"60"}}
			if rejected++; rejected <= 5 {
				return 429, http.Header{"Retry-After": {"5"}}
			}
			return 200, h
		}}
		client := heed.NewClient(&heed.Transport{Base: s, Quota: &quota.Tracker{NeverTest: true}, Trace: &heed.Trace{
			Hold:         func(h quota.HoldInfo) { holds = append(holds, h) },
			LimitLearned: func(l quota.LimitLearnedInfo) { learned = append(learned, l) },
		}})
		confirmHold(t, client)
		failed, _ := runJob(t, client, 1, 1)
		require.Zero(t, failed)
		require.Len(t, holds, 2)
		require.True(t, holds[0].Held)
		require.Equal(t, "api.test: retry-after", holds[0].Limit)
		require.InDelta(t, 5*time.Second, holds[0].For, float64(250*time.Millisecond))
		require.False(t, holds[0].Estimated)
		require.False(t, holds[1].Held)
		require.Equal(t, quota.LimitLearnedInfo{Host: "api.test", Limit: "api.test: quota", Size: 100}, learned[0])
	})
}

// confirmHold sends five requests that the server must reject, the last of which begins a hold.
func confirmHold(t *testing.T, client *http.Client) {
	t.Helper()
	for range 5 {
		ctx := heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/items", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
	}
}

// TestTrace_reportsALearnedRate checks that LimitLearned is called when an estimated rate
// is learned, changed and dropped.
func TestTrace_reportsALearnedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := map[quota.Change]int{}
		limited, start := bucketServer(20, 21, 429, false), time.Now()
		s := &simulatedServer{rtt: time.Millisecond, serve: func(now time.Time) (int, http.Header) {
			if now.Sub(start) > 20*time.Second {
				return 200, nil // without a limit
			}
			return limited(now)
		}}
		client := heed.NewClient(&heed.Transport{Base: s, Quota: &quota.Tracker{Mode: quota.Full}, Trace: &heed.Trace{LimitLearned: func(l quota.LimitLearnedInfo) {
			assert.Equal(t, "api.test: learned rate", l.Limit)
			if l.Size == 0 { // since issue 14 a window is learned first, and dropped when it proves to be a bucket
				changes[l.Change]++
			}
		}}})
		for time.Since(start) < 2*time.Minute {
			failed, _ := runJob(t, client, 30, 30)
			require.Zero(t, failed)
			time.Sleep(500 * time.Millisecond)
		}
		require.Positive(t, changes[quota.Learned])
		require.Positive(t, changes[quota.Changed])
		require.Positive(t, changes[quota.Dropped])
	})
}

// TestTracker_forgetReleasesWaitingRequests checks that Tracker.Forget releases callers
// that wait for a hold.
func TestTracker_forgetReleasesWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejected := 0
		s := &simulatedServer{rtt: time.Millisecond, serve: func(time.Time) (int, http.Header) {
			if rejected++; rejected <= 5 {
				return 429, http.Header{"Retry-After": {"60"}}
			}
			return 200, nil
		}}
		tracker := quota.Tracker{NeverTest: true}
		client := heed.NewClient(&heed.Transport{Base: s, Quota: &tracker})
		go func() {
			time.Sleep(10 * time.Second)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://API.test:80/other", nil)
			if err != nil {
				panic(err)
			}
			tracker.Forget(req)
		}()
		confirmHold(t, client)
		failed, elapsed := runJob(t, client, 5, 5)
		require.Zero(t, failed)
		require.InDelta(t, 10*time.Second, elapsed, float64(time.Second))
	})
}

// TestTracker_modes checks that StatedOnly and Disabled learn no rate of a server that
// rejects with 429 without rate-limit headers.
func TestTracker_modes(t *testing.T) {
	for _, tt := range []struct {
		mode       quota.Mode
		retryAfter bool
		wasted     func(int) bool
	}{
		{quota.Full, false, func(n int) bool { return n <= 75 }},
		{quota.StatedOnly, false, func(n int) bool { return n > 60 }},
		{quota.StatedOnly, true, func(n int) bool { return n <= 300 }},
		{quota.Disabled, true, func(n int) bool { return n > 60 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &simulatedServer{rtt: time.Millisecond, serve: bucketServer(20, 21, 429, tt.retryAfter)}
			estimates := 0
			tr := seededTransport(s, 1)
			tr.Quota.Mode = tt.mode
			tr.Trace = &heed.Trace{LimitLearned: func(quota.LimitLearnedInfo) { estimates++ }}
			client := heed.NewClient(tr)
			runJob(t, client, 200, 30)
			require.Equal(t, tt.mode == quota.Full, estimates > 0)
			t.Logf("mode %d, Retry-After %v: %d wasted", tt.mode, tt.retryAfter, s.wasted)
			require.True(t, tt.wasted(s.wasted), "mode %d: %d wasted", tt.mode, s.wasted)
		})
	}
}
