package quota

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// An update about a hold that is over shows nothing about a quota. The end of a fetch is known once, and
// ends no other hold.
func TestEndpoint_ignoresWhatIsOver(t *testing.T) {
	_, q, now := sharedQuota(t, .5)
	ep := q.endpoint
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3}, now))
	require.False(t, q.Hold.Held)
	require.False(t, ep.apply(Update{Kind: UpdateHold, Stated: true, Sender: 3, Wait: 1}, now))
	require.True(t, q.Hold.Held, "that of all routes of which nothing is known")
	require.Empty(t, ep.quotas)

	_, q, now = sharedQuota(t, .5)
	q.FetchUntil = now.Add(fetchTime)
	q.Hold.Begin(0, now.Add(time.Minute), now)
	require.True(t, q.endpoint.endFetch())
	require.False(t, q.endpoint.endFetch())
	require.Equal(t, now.Add(time.Minute), q.Hold.Until, "it is held since")
	require.Zero(t, q.FetchUntil)
}

// Processes of two releases share accounts and routes during a deployment, so their hashes are the same in
// all releases.
func TestSharing_hashesAreThoseOfOtherReleases(t *testing.T) {
	tr, q, _ := sharedQuota(t, .5)
	s := tr.sharing
	id := func(words ...string) string { return base64.RawURLEncoding.EncodeToString(s.hash(words...)[:16]) }
	require.Equal(t, id("account", "https", "api.test", ""), q.endpoint.id)
	require.Equal(t, id("account", "http", "api.test", ""), tr.endpointOf(request(t, "http://api.test/")).id)
	require.Equal(t, id("account", "https", "api.test", "Authorization\x00\x03one"), tr.endpointOf(request(t, users, "Authorization", "one")).id)
	for _, route := range []string{"r/users", "r//orders", "/"} {
		mac := hmac.New(sha256.New, s.hash("route"))
		mac.Write([]byte(route))
		h := binary.BigEndian.Uint64(mac.Sum(nil))
		req := request(t, "https://api.test/"+strings.Replace(strings.TrimPrefix(route, "r/"), "/", "17/", 1))
		if route[0] != 'r' {
			req = request(t, "https://api.test")
			req.Method = http.MethodPost
		}
		require.Equal(t, h&^(1<<63), q.endpoint.route(req), route)
	}
}

// A rejection without limits of a route that has a quota concerns the quota that granted the request, too.
func TestEndpoint_rejectionWithoutLimitsIsObserved(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	req := request(t, users)
	ep := (&Tracker{}).endpointOf(req)
	asked, other := ep.unknown.Load(), ep.newQuota()
	ep.quotas = []*quota{other}
	ep.routes = map[uint64]*quota{ep.route(req): other}
	require.True(t, ep.assignRoute(req, asked, &throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: time.Second}))
	require.False(t, ep.assignRoute(req, asked, &throttle.Feedback{Now: now, RemoteLimits: []throttle.RemoteLimit{{Limit: 10, Remaining: 3, ResetAfter: time.Second}}}))
	require.Len(t, other.Estimates, 1)
	require.Empty(t, asked.Estimates)
}

// concurrentEstimate returns an estimate of a limit of requests in flight, of which left may be begun.
func concurrentEstimate(limit, left int64, reset time.Time) statedlimit.Estimate {
	e := statedlimit.NewEstimate(throttle.RemoteLimit{Unit: statedlimit.UnitConcurrent}, false)
	e.Limit, e.Remaining, e.Reset = limit, left, reset
	return e
}

// windowEstimate returns an estimate of which 50 of 100 units are left as of now, until a minute later. The
// server restores all units at the reset.
func windowEstimate(now time.Time) (e statedlimit.Estimate) {
	var f inflight.Claims
	limit := throttle.RemoteLimit{Limit: 100, Remaining: 99, ResetAfter: 71 * time.Second, Per: 2 * time.Minute}
	send := func(n int, at time.Time) {
		for range n {
			e.Granted(at, &f, statedlimit.Pacing{})
			f.End(f.Add())
		}
	}
	send(1, now.Add(-11*time.Second))
	e.Update(limit, 1, now.Add(-11*time.Second), &f)
	send(19, now.Add(-11*time.Second))
	limit.Remaining, limit.ResetAfter = 80, 70*time.Second
	e.Update(limit, 20, now.Add(-10*time.Second), &f)
	send(30, now.Add(-10*time.Second))
	limit.Remaining, limit.ResetAfter = 50, time.Minute
	e.Update(limit, 50, now, &f)
	return e
}

// sharedEstimate returns an estimate of a limit that other clients use, too: 5 of 10 units are left as of
// now, until a minute later.
func sharedEstimate(now time.Time) (e statedlimit.Estimate) {
	limit := throttle.RemoteLimit{Limit: 100, Remaining: 99, ResetAfter: time.Minute}
	e.Update(limit, 0, now.Add(-time.Second), &inflight.Claims{})
	limit.Remaining = 50
	e.Update(limit, 0, now, &inflight.Claims{})
	e.Limit, e.Remaining = 10, 5
	return e
}

// Why a quota admits no request now, for a snapshot: because of a quota only if that is used up, not while
// its requests are spread, or wait for responses.
func TestQuotaSnapshot_hold(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		e        statedlimit.Estimate
		headroom float64
		open     int64
		want     *HoldSnapshot
	}{
		"units are left":         {statedlimit.Estimate{Limit: 10, Remaining: 5, At: now, Reset: now.Add(time.Minute)}, 0, 0, nil},
		"used up":                {statedlimit.Estimate{Limit: 10, At: now, Reset: now.Add(time.Minute)}, 0, 0, &HoldSnapshot{Reason: "quota", Since: now, Until: now.Add(time.Minute)}},
		"all are in flight":      {statedlimit.Estimate{Limit: 10, Remaining: 5, At: now, Reset: now.Add(time.Minute)}, 0, 5, nil},
		"the rest is reserved":   {statedlimit.Estimate{Limit: 10, Remaining: 5, At: now, Reset: now.Add(time.Minute)}, .5, 0, &HoldSnapshot{Reason: "quota", Since: now, Until: now.Add(time.Minute)}},
		"a probe is due":         {statedlimit.Estimate{Limit: 10, At: now, Reset: now}, 0, 0, nil},
		"a probe is in flight":   {statedlimit.Estimate{Limit: 10, At: now, Reset: now, Probe: true}, 0, 1, &HoldSnapshot{Reason: "quota", Since: now, Until: now, Probe: true}}, // nothing was ever left, so others wait for its response
		"all workers are busy":   {concurrentEstimate(10, 0, now.Add(1)), 0, 0, nil},
		"all of them are ours":   {concurrentEstimate(10, 5, now.Add(1)), 0, 5, nil},
		"other clients share it": {sharedEstimate(now), 0, 0, nil},
	} {
		q := quotaAt(t, 0)
		q.Account.Pacing.Headroom = tt.headroom
		q.Estimates = []statedlimit.Estimate{tt.e}
		for range tt.open {
			q.InFlight.Add()
		}
		require.Equal(t, tt.want, q.holdSnapshot(now), name)
	}
	for name, tt := range map[string]struct {
		ramp, limiter int64
		n             int
		reason        string
	}{
		"nothing":              {0, 0, 0, ""},
		"slow start":           {4, 0, 4, "slow start"},
		"overload":             {0, 3, 3, "overload"},
		"the limiter is lower": {4, 3, 3, "overload"},
		"the ramp is lower":    {2, 3, 2, "slow start"},
		"they are the same":    {4, 4, 4, "slow start"},
	} {
		q := quotaAt(t, 0)
		if tt.ramp > 0 {
			q.Ramp = concurrency.NewRamp(tt.ramp-1, now, time.Second)
		}
		limitOverload(&q.Overload, tt.limiter, now)
		n, reason := q.concurrency(now)
		require.Equal(t, tt.n, n, name)
		require.Equal(t, tt.reason, reason, name)
	}
}

// limitOverload makes g limit the requests in flight to n; 0: it does not.
func limitOverload(g *concurrency.AdaptiveLimiter, n int64, now time.Time) {
	for i := uint64(1); n > 0 && g.Limit() != n && i < 100; i++ {
		g.Add(concurrency.Outcome{Claim: i, Failed: true, With: 4 * n, Open: 4 * n, Sent: 100, RoundTrip: time.Millisecond}, now.Add(time.Duration(i)*time.Millisecond))
	}
}

// A Tracker that forgets an account makes a new one for its next request.
func TestTracker_forgetsTheAccount(t *testing.T) {
	tr := &Tracker{}
	req := request(t, users)
	before := tr.endpointOf(req)
	other := tr.endpointOf(request(t, "https://other.test/"))
	w := &countingWaker{}
	tr.Notify(w)
	tr.Forget(req)
	require.Equal(t, 1, w.woken, "requests that waited may be sent")
	tr.Forget(req)
	require.Equal(t, 1, w.woken, "nothing is known of it")
	require.Len(t, tr.endpoints, 1)
	require.NotSame(t, before, tr.endpointOf(req))
	require.Same(t, other, tr.endpointOf(request(t, "https://other.test/")))
}

// The rejections of a provider are recognized where its quotas are small, too.
func TestSmallQuota_classifiesByProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		var req *http.Request
		for i := range maxQuotas + 1 {
			url := strings.Replace(routeURL(i), "api.test", "api.github.com", 1)
			req = request(t, url)
			ask(t, tr, url, answer(200, "X-RateLimit-Resource", routeURL(i), "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "946684860"))
		}
		d := tr.Demand(req)
		require.IsType(t, &smallQuota{}, d.Limiter)
		f := tr.Feedback(req, d, answer(http.StatusForbidden, "X-RateLimit-Resource", "x", "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684860"), nil, time.Now(), nil)
		require.Equal(t, throttle.Throttled, f.Outcome)
	})
}

// Rejections in the bodies of successful responses are read for the providers that send them, whatever the
// Mode and the kind of quota is.
func TestTracker_readsBodiesOfProviders(t *testing.T) {
	limited := func() *http.Response {
		resp := answer(200, "Content-Type", "application/json")
		resp.Body = io.NopCloser(strings.NewReader(`{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`))
		return resp
	}
	req := request(t, "https://api.github.com/graphql")
	req.Method = http.MethodPost
	for name, tr := range map[string]*Tracker{"full": {}, "disabled": {Mode: Disabled}} {
		require.Equal(t, throttle.Throttled, tr.Feedback(req, tr.Demand(req), limited(), nil, time.Now(), nil).Outcome, name)
	}
	tr := &Tracker{}
	ep := tr.endpointOf(req)
	ep.small = &smallQuotas{began: time.Now()}
	d := throttle.Demand{Limiter: &smallQuota{endpoint: ep, name: 1, limit: 9, remaining: 9}}
	require.Equal(t, throttle.Throttled, tr.Feedback(req, d, limited(), nil, time.Now(), nil).Outcome, "a small quota")
	other := request(t, "https://api.test/graphql")
	require.Equal(t, throttle.Accepted, tr.Feedback(other, tr.Demand(other), limited(), nil, time.Now(), nil).Outcome, "an unknown host")
}

// A response that states the limits of another quota than the small one that granted the request does not
// change that one. One that states none shows that the route has none.
func TestEndpoint_assignsSmallQuotasOfResponses(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	req := request(t, users)
	ep := (&Tracker{}).endpointOf(req)
	ep.small = &smallQuotas{began: now}
	ep.Memory.Store(model.MaxBytes - 10*smallBytes)
	asked := &smallQuota{endpoint: ep, limit: 1, remaining: 1}
	ep.addSmall(ep.route(req), asked, now)
	f := throttle.Feedback{Now: now, RemoteLimits: []throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 7, ResetAfter: time.Minute}}}
	ep.observeSmall(req, asked, &f)
	require.Nil(t, f.RemoteLimits)
	named := ep.small.find(ep.route(req))
	require.NotSame(t, asked, named)
	require.EqualValues(t, []int32{10, 7}, []int32{named.limit, named.remaining})
	require.Contains(t, ep.replaced, throttle.Limiter(asked))
	f.RemoteLimits = []throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 6, ResetAfter: time.Minute}}
	ep.observeSmall(req, named, &f)
	require.Len(t, f.RemoteLimits, 1, "it observes its own")
	ep.replaced = nil
	unstated := &smallQuota{endpoint: ep, limit: 1, remaining: 1}
	ep.observeSmall(req, unstated, &throttle.Feedback{Now: now})
	require.True(t, unstated.statesNothing())
	require.Equal(t, []throttle.Limiter{unstated}, ep.replaced)
}

// Names of limits are copied, because they are parts of header fields. Limits in other units that were stated
// to another quota are applied, too.
func TestQuota_keepsLimitsOfResponses(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := quotaAt(t, 0)
	name := strings.Clone("requests-per-minute")
	u := q.inUnit("tokens")
	q.applyStated([]throttle.RemoteLimit{{Name: name, Limit: 9, Remaining: 3, ResetAfter: time.Minute}, {Unit: "tokens", Limit: 9, Remaining: 4, ResetAfter: time.Minute}}, now)
	require.Equal(t, name, q.Estimates[0].Name)
	require.NotSame(t, unsafe.StringData(name), unsafe.StringData(q.Estimates[0].Name))
	require.Len(t, u.Estimates, 1)
	require.EqualValues(t, 4, u.Estimates[0].Remaining)
}
