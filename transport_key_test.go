package heed

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/stretchr/testify/require"
)

func TestPerHost_isCanonical(t *testing.T) {
	for raw, want := range map[string]string{
		"https://API.Example.com./a?b":  "https://api.example.com",
		"https://api.example.com:443":   "https://api.example.com",
		"http://api.example.com:80/":    "http://api.example.com",
		"http://api.example.com:443/":   "http://api.example.com:443",
		"https://me:pw@a.test:8443/":    "https://a.test:8443",
		"http://[FE80::1]:80/":          "http://[fe80::1]",
		"HTTP://a.test":                 "http://a.test",
		"https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, want, PerHost(&http.Request{URL: u}), raw)
	}
	require.Equal(t, "http://a.test", PerHost(&http.Request{URL: &url.URL{Scheme: "HTTP", Host: "A.test:80"}}))
	require.Empty(t, PerHost(&http.Request{}))
}

// TestTransport_keyReachesTheLimiter checks that the claims of each attempt have the key of
// the request, and that Key is called once.
func TestTransport_keyReachesTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, keys := 0, []string{}
		tr := &Transport{Base: newScript(500, 500, 200), Retry: threeAttempts(), Limiter: keyRecorder{&keys}, Key: func(r *http.Request) string {
			calls++
			return PerHost(r)
		}}
		_, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []string{"http://api.test", "http://api.test", "http://api.test"}, keys)
		require.Equal(t, 1, calls)
	})
}

// A keyRecorder grants all claims and records their keys.
type keyRecorder struct{ keys *[]string }

func (l keyRecorder) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	*l.keys = append(*l.keys, c.Key)
	return throttle.AllowAll.Reserve(ctx, c)
}
func (keyRecorder) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (keyRecorder) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// TestTransport_keySeparatesHosts checks that a limit per host delays only requests to the
// host that is busy.
func TestTransport_keySeparatesHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		buckets := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(1)})
		tr := &Transport{Base: s, Limiter: buckets, Key: PerHost}
		start := time.Now()
		for _, tt := range []struct {
			host string
			at   time.Duration
		}{{"a.test", 0}, {"b.test", 0}, {"A.test:80", time.Second}, {"b.test.", time.Second}} {
			req := request(t, "GET", "")
			req.URL.Host, req.Host = tt.host, ""
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, tt.at, time.Since(start), tt.host)
		}
	})
}

// TestTransport_anErrorOfLimitsEndsTheCall checks that nothing is sent or claimed after an
// error of Limits, that the body is closed, and that the demands do not reach a later call.
func TestTransport_anErrorOfLimitsEndsTheCall(t *testing.T) {
	l, fails := &recorder{}, true
	errUnknown := errors.New("unknown tenant")
	s, gaveUp := newScript(200), []DoneInfo(nil)
	trace := &Trace{Done: func(_ *http.Request, i DoneInfo) { gaveUp = append(gaveUp, i) }}
	tr := &Transport{Base: s, Trace: trace, Limits: func(_ *http.Request, t *queue.Ticket) error {
		if fails {
			t.Add(throttle.Demand{Limiter: l})
			t.Priority, t.Tenant = 7, "x"
			return errUnknown
		}
		if len(t.Demands) > 0 || t.Priority != 0 || t.Tenant != "" {
			panic("the ticket of another call")
		}
		return nil
	}}
	for _, errUnknown = range []error{errUnknown, &throttle.RejectedError{}, context.DeadlineExceeded} {
		body := &opaque{Reader: strings.NewReader("x")}
		_, err := tr.RoundTrip(put(t, body, 1))
		require.ErrorIs(t, err, errUnknown)
		require.EqualError(t, err, "heed: Transport.Limits: "+errUnknown.Error())
		require.Equal(t, 1, body.closed)
		last := gaveUp[len(gaveUp)-1]
		last.Duration = 0
		require.Equal(t, DoneInfo{Info: Info{StopReason: err}, Err: err}, last)
	}
	require.Equal(t, [3]int{}, l.ends())
	require.Zero(t, s.sent())

	fails = false
	_, err := get(t, tr)
	require.NoError(t, err)
	require.Equal(t, [3]int{}, l.ends())
	require.Equal(t, 1, s.sent())
}

// TestRequestOptions_tenantsShareALimit checks that the queue alternates between tenants.
func TestRequestOptions_tenantsShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		done := make(chan struct{}, 8)
		tr := &Transport{
			Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)),
			Trace: &Trace{AttemptStart: func(r *http.Request, _ AttemptInfo) { seen = append(seen, OptionsFrom(r.Context()).Tenant) }},
		}
		for _, tenant := range []string{"first", "a", "a", "a", "b", "b"} {
			go func() {
				defer func() { done <- struct{}{} }()
				tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Tenant: tenant})))
			}()
			synctest.Wait()
		}
		for range 6 {
			<-done
		}
		require.Equal(t, []string{"first", "a", "b", "a", "b", "a"}, seen)
	})
}
