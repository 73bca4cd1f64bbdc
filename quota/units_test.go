package quota

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// tokens is a response that states how many tokens are left.
func tokens(limit, left int64, reset string) *http.Response {
	return answer(200,
		"X-RateLimit-Limit-Requests", "1000", "X-RateLimit-Remaining-Requests", "999", "X-RateLimit-Reset-Requests", reset,
		"X-RateLimit-Limit-Tokens", strconv.FormatInt(limit, 10), "X-RateLimit-Remaining-Tokens", strconv.FormatInt(left, 10), "X-RateLimit-Reset-Tokens", reset)
}

// spend claims n tokens.
func spend(t *testing.T, tr *Tracker, n int64) throttle.Decision {
	m := tr.DemandUnits(request(t, users), "tokens", n)
	d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{Cost: m.Cost})
	require.NoError(t, err)
	return d
}

func TestUnitQuota_holdsClaimsOfKnownCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		require.True(t, spend(t, &tr, 1_000_000).OK, "the server has stated nothing yet")
		tr = Tracker{}
		require.Nil(t, tr.DemandUnits(request(t, users), "tokens", 0).Limiter)
		spend(t, &tr, 1)
		ask(t, &tr, users, tokens(1000, 700, "60s"))
		first := spend(t, &tr, 400)
		require.True(t, first.OK)
		require.Equal(t, "api.test: quota of tokens", first.Policy)
		d := spend(t, &tr, 400)
		require.False(t, d.OK, "400 of 699 are in flight")
		require.True(t, d.ServerImposed)
		require.Equal(t, time.Minute, d.Wait)
		require.True(t, spend(t, &tr, 200).OK)
		require.True(t, mayAsk(t, &tr, users), "a request of unknown cost does not wait")
		m := tr.DemandUnits(request(t, users), "tokens", 400)
		m.Limiter.Cancel(t.Context(), throttle.Claim{Cost: m.Cost}, first)
		require.True(t, spend(t, &tr, 400).OK, "it was not sent")
		require.False(t, spend(t, &tr, 400).OK)
		require.True(t, spend(t, &tr, 1).OK)
		time.Sleep(time.Minute)
		require.False(t, spend(t, &tr, 5000).OK, "the claims in flight may have used all units")
	})
}

// A claim of more than the limit is granted when the limit is free.
func TestUnitQuota_admitsClaimsOfMoreThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		tr.DemandUnits(request(t, users), "tokens", 1).Limiter.(*unitQuota).applyStated([]throttle.RemoteLimit{
			{Unit: "tokens", Limit: 1000, Remaining: 999, ResetAfter: time.Minute}}, time.Now())
		require.False(t, spend(t, &tr, 5000).OK)
		time.Sleep(time.Minute)
		require.True(t, spend(t, &tr, 5000).OK, "the window is over")
		require.False(t, spend(t, &tr, 1).OK, "what is left is not known before the response")
	})
}

// A model with a limit of 1,000 tokens a second, a burst of 10,000, and no limit of requests: almost
// nothing is rejected, and the time is about the ideal one.
func TestUnitQuota_keepsALimitOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := seeded(1), &queue.Queue{}
		limit := throttle.NewTokenBucket(throttle.Limit{Count: 1000, Per: time.Second, Burst: 10_000})
		rejected, start := 0, time.Now()
		var mu sync.Mutex
		serve := func(cost int64) *http.Response {
			time.Sleep(50 * time.Millisecond)
			d, err := limit.Reserve(t.Context(), throttle.Claim{Cost: cost})
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			resp := tokens(d.Limit, d.Remaining, d.ResetAfter.String())
			if !d.OK {
				rejected++
				resp.StatusCode = 429
			}
			return resp
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 5 {
					cost := int64(100 + 60*((i+j)%20))
					req := request(t, users)
					var ticket queue.Ticket
					ticket.Demands[0], ticket.Demands[1] = tr.Demand(req), tr.DemandUnits(req, "tokens", cost)
					require.NoError(t, w.Wait(t.Context(), &ticket))
					resp := serve(cost)
					w.Observe(t.Context(), &ticket, tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil))
				}
			})
		}
		wg.Wait()
		// 100 requests of 670 tokens on average, less the burst.
		ideal := 57 * time.Second
		t.Logf("%d rejected, %v", rejected, time.Since(start))
		require.LessOrEqual(t, rejected, 2)
		require.Less(t, time.Since(start), ideal*5/4)
	})
}

// Claims that were not sent leave nothing behind: as much is free as before, to the unit.
func TestUnitQuota_canceledClaimsReturnWhatTheyClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		spend(t, &tr, 1)
		ask(t, &tr, users, tokens(1000, 101, "60s")) // one of them is in flight
		require.True(t, spend(t, &tr, 50).OK)
		for _, n := range []int64{1, 5, 50} {
			for range 20 {
				d := spend(t, &tr, n)
				require.True(t, d.OK)
				m := tr.DemandUnits(request(t, users), "tokens", n)
				m.Limiter.Cancel(t.Context(), throttle.Claim{Cost: m.Cost}, d)
			}
		}
		require.False(t, spend(t, &tr, 51).OK)
		require.True(t, spend(t, &tr, 50).OK)
		require.False(t, spend(t, &tr, 1).OK)
	})
}

// A quota that is dropped for another one takes its units along: they delay nothing any longer.
func TestUnitQuota_isDroppedWithItsQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		use := func(i int) throttle.Demand {
			req := request(t, users)
			req = req.WithContext(WithName(req.Context(), strconv.Itoa(i)))
			d := tr.DemandUnits(req, "tokens", 10)
			exchange(t, &tr, req, tokens(1000, 0, "24h"))
			time.Sleep(time.Second)
			return d
		}
		use(0)
		use(1)
		m := use(1)
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{Cost: m.Cost})
		require.NoError(t, err)
		require.False(t, d.OK, "no tokens are left for a day")
		for i := range maxQuotas {
			use(i + 2)
		}
		d, err = m.Limiter.Reserve(t.Context(), throttle.Claim{Cost: m.Cost})
		require.NoError(t, err)
		require.True(t, d.OK, "the quota was dropped")
	})
}

// A response counts once, whatever is reported twice, and a claim that was not granted has none.
func TestUnitQuota_countsEachResponseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		spend(t, &tr, 1)
		ask(t, &tr, users, tokens(1000, 101, "60s")) // one of them is in flight
		m := tr.DemandUnits(request(t, users), "tokens", 40)
		d := spend(t, &tr, 40)
		require.True(t, d.OK)
		observe := func(cost int64, d throttle.Decision) {
			throttle.Observe(t.Context(), m.Limiter, throttle.Claim{Cost: cost}, d, throttle.Feedback{Now: time.Now()})
		}
		observe(40, d)
		observe(40, d)
		observe(-1, d)
		observe(40, throttle.Decision{})
		require.False(t, spend(t, &tr, 61).OK)
		require.True(t, spend(t, &tr, 60).OK)
	})
}
