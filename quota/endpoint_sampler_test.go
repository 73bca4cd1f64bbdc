package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// calm makes host quiet: it answers well until nothing is demanded any more, and
// then n times more, every millisecond.
func calm(t *testing.T, tr *Tracker, url string, n int) {
	for range knownAfter {
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

// untracked is the answer to a request of which nothing was demanded.
func untracked(t *testing.T, tr *Tracker, url string, resp *http.Response) {
	tr.Feedback(request(t, url), throttle.Demand{}, resp, nil, time.Now(), nil)
}

func TestQuiet_refusalEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		calm(t, &tr, users, 1000)
		untracked(t, &tr, users, answer(429, "Retry-After", "60"))
		m := tr.Demand(request(t, users))
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK)
		require.GreaterOrEqual(t, d.Wait, time.Minute)
	})
}

// All that was on its way when the first was refused is one event.
func TestQuiet_burstOfRefusalsIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		calm(t, &tr, users, 1000)
		for range 50 {
			untracked(t, &tr, users, answer(429))
		}
		q := tr.Demand(request(t, users)).Limiter.(*quota)
		require.Equal(t, 1, q.hold.closings)
		require.LessOrEqual(t, time.Until(q.hold.until), basePause)
	})
}

// A request that was granted before the host was quiet is rejected. A bare 429 would hold
// back nothing but its own request, so this one states when to come back.
func TestQuiet_refusalOfAnOldClaimEndsItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		req := request(t, users)
		old := tr.Demand(req)
		d, err := old.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		calm(t, &tr, users, 0)
		throttle.Observe(t.Context(), old.Limiter, throttle.Claim{}, d, tr.Feedback(req, old, answer(429, "Retry-After", "60"), nil, time.Now(), nil))
		require.False(t, mayAsk(t, &tr, users))
	})
}

// What was accepted while nothing was counted is known well enough for a first estimate.
// Before, one Retry-After made a rate of it, which slowed down a healthy server's client
// for minutes: Retry-After says nothing of the rate, so now the evidence of several
// rejections is asked for.
func TestQuiet_knowsWhatWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		calm(t, &tr, users, 1000) // 1,000 a second
		untracked(t, &tr, users, answer(429, "Retry-After", "1"))
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

func TestQuiet_hintsEndIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		calm(t, &tr, users, 0)
		for range sampleEvery {
			untracked(t, &tr, users, answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"))
		}
		require.False(t, mayAsk(t, &tr, users))
	})
}

// A server whose limit is met only after it was quiet for long.
func TestQuiet_heedsALimitThatIsMetLate(t *testing.T) {
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
