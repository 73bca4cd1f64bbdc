package warmup_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// A fakeAPI is a RoundTripper that responds immediately and records when it was called.
type fakeAPI struct {
	mu     sync.Mutex
	status int
	at     []time.Time
}

func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Now())
	return &http.Response{StatusCode: a.status, Body: http.NoBody, Request: r}, nil
}

// burst sends n requests at the same time and returns their times of arrival since the first.
func (a *fakeAPI) burst(t *testing.T, c *http.Client, n int) []time.Duration {
	a.at = nil
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := c.Get("http://api.example.com/")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
	var since []time.Duration
	for _, at := range a.at {
		since = append(since, at.Sub(a.at[0]))
	}
	return since
}

// maxDeviation returns the maximum relative deviation of arrivals from the curve of a cold
// limit.
func maxDeviation(c warmup.Config, arrivals []time.Duration) (off float64) {
	for n, at := range arrivals[1:] {
		want := c.After(int64(n) + 1)
		off = max(off, (at-want).Abs().Seconds()/want.Seconds())
	}
	return off
}

// TestTransport_followsTheCurve checks that requests that are made at the same time are
// sent along the curve: 30 in the first three seconds, then 20 per second. The same holds
// after three idle seconds and after an outage.
func TestTransport_followsTheCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		curve := warmup.Config{Limit: throttle.PerSecond(20), Period: 3 * time.Second, Outage: time.Second}
		a := &fakeAPI{status: http.StatusOK}
		c := heed.NewClient(&heed.Transport{Base: a, Limiter: warmup.New(curve), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		const within = .02

		first := a.burst(t, c, 200)
		t.Log("off the curve by at most", maxDeviation(curve, first))
		require.Less(t, maxDeviation(curve, first), within)
		require.InDelta(t, 3, first[30].Seconds(), 3*within)
		require.InDelta(t, 20, 100/(first[199]-first[99]).Seconds(), 20*within)

		time.Sleep(time.Second)
		require.Greater(t, maxDeviation(curve, a.burst(t, c, 200)), within, "a second makes it hardly cold")
		time.Sleep(curve.Period + 50*time.Millisecond) // the time that the last request of the burst takes
		require.Less(t, maxDeviation(curve, a.burst(t, c, 200)), within, "after idleness")

		a.status = http.StatusServiceUnavailable
		a.burst(t, c, 21) // takes more than a second
		a.status = http.StatusOK
		require.Less(t, maxDeviation(curve, a.burst(t, c, 200)), within, "after an outage")
	})
}
