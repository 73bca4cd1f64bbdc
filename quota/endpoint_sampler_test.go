package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// makeUnlimited sends successful requests, one per millisecond, until no limit is demanded, and then
// n more.
func makeUnlimited(t *testing.T, tr *Tracker, url string, n int) {
	for range concurrency.KnownAfter {
		require.True(t, ask(t, tr, url, answer(200)).OK)
		time.Sleep(time.Millisecond)
	}
	req := request(t, url)
	for range n {
		m := tr.Demand(req)
		require.Nil(t, m.Limiter)
		tr.Feedback(req, m, answer(200), nil, time.Time{}, nil)
		time.Sleep(time.Millisecond)
	}
}

// receive reports the response to a request for which no limit was demanded.
func receive(t *testing.T, tr *Tracker, url string, resp *http.Response) {
	tr.Feedback(request(t, url), throttle.Demand{}, resp, nil, time.Now(), nil)
}

func TestSampler_rejectionEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		makeUnlimited(t, &tr, users, 1000)
		receive(t, &tr, users, answer(429, "Retry-After", "60"))
		m := tr.Demand(request(t, users))
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK)
		require.GreaterOrEqual(t, d.Wait, time.Minute)
	})
}

// The rejections of all requests that were in flight together are one event.
func TestSampler_burstOfRejectionsIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		makeUnlimited(t, &tr, users, 1000)
		for range 50 {
			receive(t, &tr, users, answer(429))
		}
		q := tr.Demand(request(t, users)).Limiter.(*quota)
		require.Equal(t, 1, q.Hold.Rejections)
		require.LessOrEqual(t, time.Until(q.Hold.Until), hold.BasePause)
	})
}

// Requests are in flight, without a Limiter, when the first one fails. Their successes count, too:
// one failure in eight is no burst.
func TestSampler_successesInFlightAreEvidence(t *testing.T) {
	for _, status := range []int{429, 403, 503} {
		synctest.Test(t, func(t *testing.T) {
			var tr Tracker
			makeUnlimited(t, &tr, users, 1000)
			for range 8 {
				receive(t, &tr, users, answer(status))
				for range 7 { // a Feedback without a time is as of now
					req := request(t, users)
					tr.Feedback(req, throttle.Demand{}, answer(200), nil, time.Time{}, nil)
				}
			}
			q := tr.Demand(request(t, users)).Limiter.(*quota)
			require.False(t, q.Hold.Active, status)
			require.False(t, (q.Inference.Loop.On() || q.Inference.Window.On()), status)
			successes, all := q.Inference.Evidence.Count(learnedlimit.CauseSuccess, 8, time.Now())
			require.Equal(t, 7, successes, status)
			require.Equal(t, 8, all, status)
		})
	}
}

// A request that was admitted before the host was unlimited is rejected. A bare 429 would hold only
// its own request, so this one has a Retry-After.
func TestSampler_rejectionOfAnOldClaimEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		req := request(t, users)
		old := tr.Demand(req)
		d, err := old.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		makeUnlimited(t, &tr, users, 0)
		throttle.Observe(t.Context(), old.Limiter, throttle.Claim{}, d, tr.Feedback(req, old, answer(429, "Retry-After", "60"), nil, time.Now(), nil))
		require.False(t, mayAsk(t, &tr, users))
	})
}

// The requests that were accepted while the host was unlimited suffice for a first estimate. One
// rejection with Retry-After is no evidence of a rate, several are.
func TestSampler_recordsWhatWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		makeUnlimited(t, &tr, users, 1000) // 1,000 a second
		receive(t, &tr, users, answer(429, "Retry-After", "1"))
		time.Sleep(3 * time.Second)
		ask(t, &tr, users, answer(200))
		q := tr.Demand(request(t, users)).Limiter.(*quota)
		require.Nil(t, loopOf(q), "one rejection sets no rate")
		rejectUntilStopped(t, &tr, users)
		time.Sleep(3 * time.Second)
		ask(t, &tr, users, answer(200))
		require.NotNil(t, loopOf(q))
	})
}

func TestSampler_statedLimitEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		makeUnlimited(t, &tr, users, 0)
		for range sampleEvery {
			receive(t, &tr, users, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"))
		}
		require.False(t, mayAsk(t, &tr, users))
	})
}

// A server begins to enforce a limit after five seconds without one.
func TestSampler_limitThatIsEnforcedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, limited := seeded(1), tokenBucket(20, 20, false)
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
		require.LessOrEqual(t, j.throttled, 60)
		require.LessOrEqual(t, j.elapsed, 20*time.Second)
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

// Responses that are not successful do not end a sample: an estimate begins with what was accepted in
// the time of at least sampleEvery successes.
func TestSampler_countsSuccessesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		makeUnlimited(t, &tr, users, 1000)
		for range 5 {
			receive(t, &tr, users, answer(404))
		}
		require.GreaterOrEqual(t, tr.endpointOf(request(t, users)).accepted(time.Now()).N, int64(sampleEvery))
	})
}
