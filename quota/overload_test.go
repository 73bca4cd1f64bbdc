package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// nginx refuses with 503 by default, and says nothing.
func TestTracker_heeds503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := tokenBucket(20, 21, false)
		s := func(now time.Time) (int, http.Header) {
			status, h := limited(now)
			if status == 429 {
				status = 503
			}
			return status, h
		}
		tr := seeded(1)
		for i := range 2 {
			j := play(t, tr, s, 300, 30, time.Millisecond)
			t.Logf("job %d: %v", i+1, j)
			require.Zero(t, j.failed)
			require.LessOrEqual(t, j.throttled, 40)
			require.LessOrEqual(t, j.elapsed, 20*time.Second)
			time.Sleep(8 * time.Second)
		}
	})
}

// A server that is down is not waited for in line for long, and not taken for a
// slow one when it is back.
func TestTracker_tellsAnOutageFromARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, start := seeded(1), time.Now()
		for range 20 {
			ask(t, tr, users, answer(200))
		}
		outcomes := map[throttle.Outcome]int{}
		req := request(t, users)
		for range 20 {
			m := tr.Demand(req)
			d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			if !d.OK {
				time.Sleep(d.Wait)
				continue
			}
			f := tr.Feedback(req, m, answer(503), nil, time.Now(), nil)
			outcomes[f.Outcome]++
			throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, d, f)
		}
		require.Equal(t, maxOverloads, outcomes[throttle.Throttled])
		require.Greater(t, outcomes[throttle.Failed], 5)
		require.Less(t, time.Since(start), 10*time.Second)
		for range 100 { // all at once
			require.True(t, ask(t, tr, users, answer(200)).OK)
		}
	})
}
