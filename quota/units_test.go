package quota

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
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
		m.Limiter.Report(t.Context(), throttle.Claim{Cost: m.Cost}, first, throttle.Feedback{State: throttle.Unused})
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
					ticket.Demands = []throttle.Demand{tr.Demand(req), tr.DemandUnits(req, "tokens", cost)}
					require.NoError(t, w.Wait(t.Context(), &ticket))
					resp := serve(cost)
					w.Report(t.Context(), &ticket, tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil))
				}
			})
		}
		wg.Wait()
		// 100 requests of 670 tokens on average, less the burst.
		ideal := 57 * time.Second
		t.Logf("%d rejected, %v", rejected, time.Since(start))
		goal(t, "limit of tokens", rejected <= 2, "%d rejected", rejected)
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
				m.Limiter.Report(t.Context(), throttle.Claim{Cost: m.Cost}, d, throttle.Feedback{State: throttle.Unused})
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
			m.Limiter.Report(t.Context(), throttle.Claim{Cost: cost}, d, throttle.Feedback{Now: time.Now()})
		}
		observe(-1, d)
		observe(40, d)
		observe(40, d)
		observe(40, throttle.Decision{})
		require.False(t, spend(t, &tr, 61).OK)
		require.True(t, spend(t, &tr, 60).OK)
	})
}

// tokensOf returns the quota of tokens of users, with one limit of which left of 1000 are left for a
// minute, and the time at which that was stated.
func tokensOf(t *testing.T, tr *Tracker, left int64) (*unitQuota, time.Time) {
	now := time.Unix(1_700_000_000, 0)
	u, ok := tr.DemandUnits(request(t, users), "tokens", 1).Limiter.(*unitQuota)
	require.True(t, ok)
	u.applyStated(statedTokens(left, time.Minute), now)
	u.LastGranted = now
	return u, now
}

func statedTokens(left int64, reset time.Duration) []throttle.RemoteLimit {
	return []throttle.RemoteLimit{{Unit: "tokens", Limit: 1000, Remaining: left, ResetAfter: reset}}
}

// refills returns a change after which a bucket is known, because before units were left ten seconds ago.
func refills(before int64) func(u *unitQuota, now time.Time) {
	return func(u *unitQuota, now time.Time) {
		left := u.Estimates[0].Remaining
		u.Estimates, u.LastGranted = nil, time.Time{}
		u.applyStated(statedTokens(before, 70*time.Second), now.Add(-10*time.Second))
		sent := u.InFlight.Sent
		u.Update(statedTokens(left, time.Minute), sent+1, now)
	}
}

// Units that accepted requests have used count when the rate of a bucket is measured.
func TestUnitQuota_measuresTheRateOfABucket(t *testing.T) {
	u, now := tokensOf(t, &Tracker{}, 500)
	d, err := u.Reserve(t.Context(), throttle.Claim{Cost: 40, Now: now})
	require.NoError(t, err)
	u.Report(t.Context(), throttle.Claim{Cost: 40}, d, throttle.Feedback{Now: now})
	now = now.Add(10 * time.Second)
	d, err = u.Reserve(t.Context(), throttle.Claim{Cost: 1, Now: now})
	require.NoError(t, err)
	u.Report(t.Context(), throttle.Claim{Cost: 1}, d, throttle.Feedback{Now: now, RemoteLimits: statedTokens(560, 44*time.Second)})
	d, err = u.Reserve(t.Context(), throttle.Claim{Cost: 660, Now: now})
	require.NoError(t, err)
	require.InDelta(t, 10, d.Wait.Seconds(), .1, "in 10 s, 101 units came back: 560 - 500 + 40 + 1")
}

// A claim is admitted if as many units are free, or if all are and it is larger than the limit. After
// the reset, one claim is sent as a probe.
func TestUnitQuota_admits(t *testing.T) {
	for name, tt := range map[string]struct {
		left, cost int64
		headroom   float64
		open       []int64 // costs of claims in flight
		change     func(u *unitQuota, now time.Time)
		after      time.Duration
		ok         bool
		wait       time.Duration
		remaining  int64
		probe      bool
	}{
		"some":                      {500, 100, 0, []int64{300, 100}, nil, time.Second, true, 0, 100, false},
		"too many":                  {500, 101, 0, []int64{300, 100}, nil, time.Second, false, 59 * time.Second, 100, false},
		"reserved":                  {500, 1, .1, []int64{300, 100}, nil, time.Second, false, 59 * time.Second, 100, false},
		"not reserved":              {500, 1, .099, []int64{300, 100}, nil, time.Second, true, 0, 100, false},
		"more than the limit":       {1000, 5000, 0, nil, nil, 0, true, 0, 1000, false},
		"more than is not reserved": {1000, 5000, .5, nil, nil, 0, true, 0, 1000, false},
		"all is reserved":           {1000, 5000, 1, nil, nil, 0, false, time.Minute, 1000, false},
		"of a bucket":               {500, 700, 0, nil, refills(399), time.Second, false, 19 * time.Second, 510, false},
		"of a slow bucket":          {500, 700, 0, nil, refills(498), time.Second, false, 59 * time.Second, 500, false},
		"probe":                     {500, 700, 0, nil, nil, time.Minute, true, 0, 500, true},
		"no probe is needed":        {500, 300, 0, nil, nil, time.Minute, true, 0, 500, false},
		"probe, all in flight":      {500, 700, 0, []int64{500}, nil, time.Minute, true, 0, 0, true},
		"some in flight":            {500, 700, 0, []int64{499}, nil, time.Minute, false, 0, 1, false},
		"a probe is in flight":      {500, 1, 0, []int64{1}, func(u *unitQuota, _ time.Time) { u.Estimates[0].Probe = true }, 0, false, 0, 499, true},
		"the probe":                 {500, 700, 0, nil, func(u *unitQuota, _ time.Time) { u.Estimates[0].Probe = true }, 0, true, 0, 500, true},
		"as many as are left":       {500, 500, 0, nil, nil, time.Minute, true, 0, 500, false},
		"used up":                   {0, 1, 0, nil, nil, time.Second, false, 59 * time.Second, 0, false},
	} {
		tr := &Tracker{Headroom: tt.headroom}
		u, now := tokensOf(t, tr, tt.left)
		for _, cost := range tt.open {
			u.InFlight.Add()
			u.InFlight.Open += cost - 1
		}
		e := &u.Estimates[0]
		if tt.change != nil {
			tt.change(u, now)
		}
		now = now.Add(tt.after)
		sent := u.InFlight.Sent
		for _, dryRun := range []bool{true, false} {
			d, err := u.Reserve(t.Context(), throttle.Claim{Cost: tt.cost, Now: now, DryRun: dryRun})
			require.NoError(t, err)
			want := throttle.Decision{OK: tt.ok, Wait: tt.wait, ServerImposed: !tt.ok, Policy: "api.test: quota of tokens", At: now, Limit: 1000, Remaining: tt.remaining, ResetAfter: time.Minute - tt.after}
			if tt.ok && !dryRun {
				want.Grant = sent + 1
				require.Equal(t, now, u.LastGranted, name)
				require.Equal(t, tt.probe, e.Probe, name)
			}
			require.Equal(t, want, d, name)
		}
	}
	u, now := tokensOf(t, &Tracker{Clock: stopped(time.Unix(1_700_000_030, 0))}, 0)
	d, _ := u.Reserve(t.Context(), throttle.Claim{})
	require.Equal(t, 30*time.Second, d.Wait, "the clock of the Tracker")
	d, _ = u.Reserve(t.Context(), throttle.Claim{Now: now.Add(-time.Hour)})
	require.Equal(t, now, d.At, "never before the latest grant")
	_, err := u.Reserve(t.Context(), throttle.Claim{Cost: -1})
	require.ErrorIs(t, err, throttle.ErrCost)
	u.Estimates = append(u.Estimates, statedlimit.Estimate{Limit: 0, Remaining: 9, Reset: now.Add(time.Minute)})
	u.Estimates[0].Remaining = 5
	d, _ = u.Reserve(t.Context(), throttle.Claim{Cost: 5, Now: now})
	require.True(t, d.OK)
	require.EqualValues(t, 1, d.Limit)
}

// Responses correct what is left, and those that do not state it count with their cost. A limit that
// not even the response to the probe states is dropped.
func TestUnitQuota_observesResponses(t *testing.T) {
	for name, tt := range map[string]struct {
		f        throttle.Feedback
		probe    bool
		lastSent uint64
		left     int64 // -1: dropped
	}{
		"states the rest":          {throttle.Feedback{RemoteLimits: statedTokens(450, time.Minute)}, false, 0, 450},
		"older, more":              {throttle.Feedback{RemoteLimits: statedTokens(550, time.Minute)}, false, 1, 500},
		"states nothing":           {throttle.Feedback{}, false, 0, 460},
		"states another unit":      {throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Unit: "points", Limit: 9}}}, false, 0, 460},
		"states no rest":           {throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Unit: "tokens", Limit: 9, RemainingUnknown: true}}}, false, 0, 460},
		"rejected, states nothing": {throttle.Feedback{Outcome: throttle.Throttled}, false, 0, 460},
		"failed":                   {throttle.Feedback{Outcome: throttle.Failed}, false, 0, 500},
		"the probe":                {throttle.Feedback{}, true, 0, -1},
		"the probe, failed":        {throttle.Feedback{Outcome: throttle.Failed}, true, 0, 500},
		"before the probe":         {throttle.Feedback{}, true, 1, 500},
		"the probe, states it":     {throttle.Feedback{RemoteLimits: statedTokens(999, time.Minute)}, true, 0, 999},
	} {
		tr := &Tracker{}
		u, now := tokensOf(t, tr, 500)
		d, err := u.Reserve(t.Context(), throttle.Claim{Cost: 40, Now: now})
		require.NoError(t, err)
		e := &u.Estimates[0]
		e.Probe, e.LastSent = tt.probe, tt.lastSent
		used := u.endpoint.Memory.Load()
		f := tt.f
		f.Now = now
		u.Report(t.Context(), throttle.Claim{Cost: 40}, d, f)
		require.Equal(t, []int64{0, 0}, []int64{u.InFlight.Count, u.InFlight.Open}, name)
		if tt.left < 0 {
			require.Empty(t, u.Estimates, name)
			require.Equal(t, model.EstimateBytes, used-u.endpoint.Memory.Load(), name)
			continue
		}
		require.Len(t, u.Estimates, 1, name)
		require.Equal(t, tt.left, u.Estimates[0].Remaining, name)
	}
	u, now := tokensOf(t, &Tracker{}, 10)
	d, _ := u.Reserve(t.Context(), throttle.Claim{Cost: 10, Now: now})
	u.Report(t.Context(), throttle.Claim{Cost: 40}, d, throttle.Feedback{Now: now})
	require.Zero(t, u.Estimates[0].Remaining, "more was used than was left")
}

// A quota has at most eight units, and none without memory or after it was dropped.
func TestQuota_hasAFewUnits(t *testing.T) {
	tr := &Tracker{}
	unit := func(name string) throttle.Limiter { return tr.DemandUnits(request(t, users), name, 1).Limiter }
	for i := range maxUnits {
		u, ok := unit("u" + strconv.Itoa(i)).(*unitQuota)
		require.True(t, ok, i)
		require.Same(t, u, unit("u"+strconv.Itoa(i)))
	}
	require.Nil(t, unit("one more"))
	tr = &Tracker{}
	q := tr.endpointOf(request(t, users)).unknown.Load()
	q.Account.Memory.Store(model.MaxBytes)
	require.Nil(t, unit("tokens"))
	q.Account.Memory.Store(0)
	q.Dropped = true
	require.Nil(t, unit("tokens"))
	require.Nil(t, (&Tracker{Mode: Disabled}).DemandUnits(request(t, users), "tokens", 1).Limiter)
}

// A rejection is explained if nothing is left of a unit that it states.
func TestQuota_unitsExplainRejections(t *testing.T) {
	tr := &Tracker{}
	u, now := tokensOf(t, tr, 500)
	q := u.endpoint.unknown.Load()
	for name, tt := range map[string]struct {
		limits []throttle.RemoteLimit
		usedUp bool
	}{
		"one is left":  {statedTokens(1, time.Minute), false},
		"none is left": {statedTokens(0, time.Minute), true},
		"less":         {statedTokens(-1, time.Minute), true},
		"not known":    {[]throttle.RemoteLimit{{Unit: "tokens", RemainingUnknown: true}}, false},
		"another unit": {[]throttle.RemoteLimit{{Unit: "points"}}, false},
		"first of two": {append(statedTokens(0, time.Minute), statedTokens(9, time.Minute)...), true},
	} {
		require.Equal(t, tt.usedUp, q.applyUnits(tt.limits, now), name)
	}
}

// A rejection that states that no requests are left, and how many tokens are, updates both.
func TestQuota_updatesUnitsWhenRequestsAreUsedUp(t *testing.T) {
	tr := &Tracker{}
	u, now := tokensOf(t, tr, 500)
	q := u.endpoint.unknown.Load()
	d, err := q.Reserve(t.Context(), throttle.Claim{Now: now})
	require.NoError(t, err)
	limits := append(statedTokens(300, time.Minute), throttle.RemoteLimit{Limit: 10, ResetAfter: time.Minute})
	q.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseStated, RemoteLimits: limits})
	require.Zero(t, q.Estimates[0].Remaining)
	require.EqualValues(t, 300, u.Estimates[0].Remaining)
}
