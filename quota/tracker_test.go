package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/throttle"
)

func request(t testing.TB, url string, header ...string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func answer(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h}
}

func TestTracker_distinguishesAccounts(t *testing.T) {
	var tr Tracker
	base := tr.Demand(request(t, "https://api.test/a")).Limiter
	require.Same(t, base, tr.Demand(request(t, "https://api.test/b?c=d")).Limiter, "paths are not distinguished yet")
	for _, other := range []*http.Request{
		request(t, "https://other.test/a"),
		request(t, "http://api.test/a"),
		request(t, "https://api.test:8443/a"),
		request(t, "https://api.test/a", "Authorization", "Bearer one"),
		request(t, "https://api.test/a", "Authorization", "Bearer two"),
		request(t, "https://api.test/a", "X-Api-Key", "Bearer one"),
	} {
		require.NotSame(t, base, tr.Demand(other).Limiter, "%v %v", other.URL, other.Header)
	}
}

// A rejection of one account does not hold the requests of another account of the same host.
func TestTracker_rejectionHoldsOneAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		one := tr.Demand(request(t, "https://api.test/", "Authorization", "one"))
		two := tr.Demand(request(t, "https://api.test/", "Authorization", "two"))
		for range holdAfter {
			exchange(t, &tr, request(t, "https://api.test/", "Authorization", "one"), answer(429, "Retry-After", "60"))
		}
		d, err := one.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK)
		d, _ = two.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.True(t, d.OK)
	})
}

func TestTracker_memoryIsBounded(t *testing.T) {
	tr := Tracker{MaxAccounts: 64}
	kept := tr.Demand(request(t, "https://kept.test/"))
	reject(t, &tr, "https://kept.test/", "Retry-After", "3600")
	for i := range 10_000 {
		tr.Demand(request(t, fmt.Sprintf("https://host%d.test/", i)))
	}
	require.Len(t, tr.endpoints, 64)
	require.Same(t, kept.Limiter, tr.Demand(request(t, "https://kept.test/")).Limiter, "blank endpoints are dropped first")
}

func withBody(status int, body string) *http.Response {
	resp := answer(status)
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return resp
}

func TestTracker_Feedback(t *testing.T) {
	var tr Tracker
	d := tr.Demand(request(t, "https://api.test/"))
	now := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		resp *http.Response
		err  error
		want throttle.Feedback
	}{
		"success":              {answer(200), nil, throttle.Feedback{}},
		"not found":            {answer(404), nil, throttle.Feedback{}},
		"error":                {nil, errors.New("broken"), throttle.Feedback{Outcome: throttle.Failed}},
		"server error":         {answer(500, "Retry-After", "7"), nil, throttle.Feedback{Outcome: throttle.Failed}},
		"429":                  {answer(429), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}},
		"429, stated":          {answer(429, "Retry-After", "7"), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: 7 * time.Second}},
		"429, now":             {answer(429, "Retry-After", "0"), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseRetryNow}},
		"429, since a minute":  {answer(429, "Retry-After", "Wed, 31 Dec 1969 23:59:00 GMT"), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseRetryNow}},
		"429, a sentence":      {withBody(429, "Too Many Requests"), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}},
		"429, a code":          {withBody(429, `{"error":{"code":"rate_limit_exceeded"}}`), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}},
		"429, a time":          {withBody(429, "Try again in 4 seconds."), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: 4 * time.Second}},
		"429, money":           {withBody(429, `{"error":{"code":"insufficient_quota"}}`), nil, throttle.Feedback{}},
		"429, a locked object": {withBody(429, `{"error":{"code":"lock_timeout"}}`), nil, throttle.Feedback{}},
		"529":                  {withBody(529, `{"error":{"type":"overloaded_error"}}`), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnavailable}}, // the tests of rule 4 are frequent after a 5xx
		"529, a time":          {withBody(529, `{"error":{"type":"overloaded_error"},"retry_after":4}`), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: 4 * time.Second}},
		"503, a code":          {withBody(503, `{"error":{"code":"rate_limit_exceeded"}}`), nil, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseUnavailable}},
		"503, overloaded":      {withBody(503, `{"error":{"type":"overloaded_error"}}`), nil, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseUnavailable}},
		"503, a time":          {withBody(503, `{"retry_after":4}`), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnavailable, RetryAfter: 4 * time.Second}},
		"403, a full disk":     {withBody(403, `{"code":"QuotaExceeded"}`), nil, throttle.Feedback{}},
		"calm":                 {nil, errors.New("http2: Transport received GOAWAY from server ErrCode:ENHANCE_YOUR_CALM"), throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}},
		"503":                  {answer(503), nil, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseUnavailable}},
		"403":                  {answer(403), nil, throttle.Feedback{}},
		"closed connection":    {nil, io.EOF, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseDropped}},
		"timeout":              {nil, &netError{errTimeout}, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseTimeout}},
		"503, stated":          {answer(503, "Retry-After", "7"), nil, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnavailable, RetryAfter: 7 * time.Second}},
		"Retry-After of a 200": {answer(200, "Retry-After", "7"), nil, throttle.Feedback{}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Now = now
			require.Equal(t, tt.want, tr.Feedback(request(t, "https://api.test/"), d, tt.resp, tt.err, now, nil))
		})
	}
}

// What the caller ends shows nothing about the server, whichever way it ends it: http.Client closes Request.Cancel after its
// Timeout, and that may be before the context ends.
func TestTracker_callersEndRequests(t *testing.T) {
	tr := &Tracker{}
	canceled := make(chan struct{})
	close(canceled)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tt := range map[string]struct {
		cancel <-chan struct{}
		ctx    context.Context
		want   throttle.Cause
	}{
		"no":              {nil, t.Context(), throttle.CauseUnknown},
		"not yet":         {make(chan struct{}), t.Context(), throttle.CauseUnknown},
		"context":         {nil, ended, throttle.CauseCanceled},
		"Request.Cancel":  {canceled, t.Context(), throttle.CauseCanceled},
		"both":            {canceled, ended, throttle.CauseCanceled},
		"context, not it": {make(chan struct{}), ended, throttle.CauseCanceled},
	} {
		req := request(t, "https://api.test/").WithContext(tt.ctx)
		req.Cancel = tt.cancel //nolint:staticcheck // http.Client sets it
		f := tr.Feedback(req, tr.Demand(req), nil, errors.New("net/http: request canceled"), time.Now(), nil)
		require.Equal(t, tt.want, f.Cause, name)
	}
}

// Limits that are stated for the first time after 1,000 responses are found within sampleEvery
// responses.
func TestTracker_findsLimitsThatAreStatedLate(t *testing.T) {
	var tr Tracker
	d := tr.Demand(request(t, "https://api.test/"))
	for range 1000 {
		require.Empty(t, tr.Feedback(request(t, "https://api.test/"), d, answer(200), nil, time.Now(), nil).RemoteLimits)
	}
	n := 1
	for n <= sampleEvery && len(tr.Feedback(request(t, "https://api.test/"), d, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "5"), nil, time.Now(), nil).RemoteLimits) == 0 {
		n++
	}
	require.LessOrEqual(t, n, sampleEvery)
}

func BenchmarkTracker(b *testing.B) {
	ctx := b.Context()
	for name, resp := range map[string]*http.Response{
		"silent": answer(200, "Content-Type", "application/json", "Date", "Mon, 02 Jan 2006 15:04:05 GMT", "Content-Length", "2"),
		"stated": answer(200, "X-RateLimit-Limit", "1000000", "X-RateLimit-Remaining", "999999", "X-RateLimit-Reset", "60"),
	} {
		b.Run(name, func(b *testing.B) {
			var tr Tracker
			req := request(b, "https://api.test/", "Authorization", "one")
			buf := make([]throttle.RemoteLimit, 0, 4)
			b.ReportAllocs()
			for b.Loop() {
				m := tr.Demand(req)
				if m.Limiter == nil {
					tr.Feedback(req, m, resp, nil, time.Time{}, buf)
					continue
				}
				d, _ := m.Limiter.Reserve(ctx, throttle.Claim{})
				m.Limiter.Report(ctx, throttle.Claim{}, d, tr.Feedback(req, m, resp, nil, time.Time{}, buf))
			}
		})
	}
}

// A Tracker that has not been used forgets nothing.
func TestTracker_forgetsBeforeItIsUsed(t *testing.T) {
	var tr Tracker
	tr.Forget(request(t, users))
	require.True(t, ask(t, &tr, users, answer(200)).OK)
}

// Responses that state nothing count against what was stated before.
func TestTracker_countsResponsesWithoutHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "60"))
		sent := 0
		for range 55 {
			time.Sleep(time.Second)
			if mayAsk(t, &tr, users) {
				ask(t, &tr, users, answer(200))
				sent++
			}
		}
		require.Equal(t, 3, sent)
	})
}

// The account that is dropped for a new one is the one which was used least recently. Its use is not
// recorded each time.
func TestTracker_dropsTheAccountUsedLeastRecently(t *testing.T) {
	var tr Tracker
	var all []*endpoint
	for _, url := range []string{"https://a.test/", "https://b.test/", "https://c.test/"} {
		ask(t, &tr, url, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "60"))
		ep := tr.endpointOf(request(t, url))
		ep.usedRecently.Store(false)
		all = append(all, ep)
	}
	require.Same(t, all[0], tr.evictable())
	all[0].usedRecently.Store(true)
	require.Same(t, all[1], tr.evictable())
	require.Same(t, all[1], tr.evictable(), "the first is the one used last")
}

// A claim that is canceled is not in flight: another one takes its place in the rate at which what has waited is sent.
func TestTracker_canceledClaimIsNotInFlight(t *testing.T) {
	var tr Tracker
	m := tr.Demand(request(t, users))
	q := m.Limiter.(*quota) //nolint:forcetypeassert // the test fails
	now := time.Now()
	reserve := func() throttle.Decision {
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{Waits: true, Now: now})
		require.NoError(t, err)
		return d
	}
	q.Ramp = concurrency.NewRamp(3, now, time.Second)
	first := reserve()
	for range 3 {
		require.True(t, reserve().OK)
	}
	require.False(t, reserve().OK, "slow start")
	m.Limiter.Report(t.Context(), throttle.Claim{}, throttle.Decision{}, throttle.Feedback{State: throttle.Unused})
	require.False(t, reserve().OK, "it was not granted")
	m.Limiter.Report(t.Context(), throttle.Claim{}, first, throttle.Feedback{State: throttle.Unused})
	require.True(t, reserve().OK)
	m.Limiter.Report(t.Context(), throttle.Claim{}, first, throttle.Feedback{State: throttle.Unused})
	require.False(t, reserve().OK, "it was canceled before")
}

func TestTracker_settingsHaveNames(t *testing.T) {
	for want, v := range map[string]fmt.Stringer{
		"full": Full, "stated only": StatedOnly, "disabled": Disabled, "mode 3": Mode(3),
		"auto": Auto, "spread": Spread, "pacing 255": Pacing(255),
	} {
		require.Equal(t, want, v.String())
	}
}
