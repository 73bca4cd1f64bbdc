package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A limit that is stated late is found and obeyed.
func TestSampler_statedLimitEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		for range sampleEvery {
			ask(t, &tr, users, answer(200))
		}
		for range sampleEvery {
			ask(t, &tr, users, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"))
		}
		require.False(t, mayAsk(t, &tr, users))
	})
}

// A server begins to enforce a limit after five seconds without one.
func TestSampler_limitThatIsEnforcedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, limited := seeded(1), tokenBucket(20, 20, false)
		tr.Mode = Full
		start := time.Now()
		s := func(now time.Time) (int, http.Header) {
			if now.Sub(start) < 5*time.Second {
				return 200, nil
			}
			return limited(now)
		}
		playUntil(t, tr, s, 100_000, 30, 50*time.Millisecond, start.Add(5*time.Second))
		j := play(t, tr, s, 300, 30, 50*time.Millisecond)
		t.Log(j)
		require.Zero(t, j.failed)
		goal(t, "limit that is enforced late", j.throttled <= 30, "%v", j)
		require.LessOrEqual(t, j.elapsed, 21*time.Second, "ideal is 14 s; new requests go before retries while the limit is an estimate")
	})
}

// The headers of the first 16 responses are read for limits, and later those of every 64th.
func TestSampler_readsTheHeadersOfSomeResponses(t *testing.T) {
	for n, read := range map[int]bool{1: true, 16: true, 17: false, 63: false, 64: true, 65: false, 128: true} {
		synctest.Test(t, func(t *testing.T) {
			var tr Tracker
			for i := 1; i <= n; i++ {
				resp := answer(200)
				if i == n {
					resp = answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "60")
				}
				req := request(t, users)
				f := tr.Feedback(req, tr.Demand(req), resp, nil, time.Now(), nil)
				require.Equal(t, i == n && read, len(f.RemoteLimits) > 0, "response %d of %d", i, n)
			}
		})
	}
}
