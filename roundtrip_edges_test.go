package heed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// TestTransport_noWaitRetriesWithoutADelay checks the retries that RequestOptions.NoWait leaves:
// those that begin immediately.
func TestTransport_noWaitRetriesWithoutADelay(t *testing.T) {
	for name, tt := range map[string]struct {
		first any
		delay time.Duration
		sent  int
	}{
		"no delay":           {500, 0, 2},
		"a broken attempt":   {errBroken, 0, 2},
		"a nanosecond":       {500, 1, 1},
		"Retry-After: 0":     {response{429, "", []string{"Retry-After", "0"}}, time.Second, 2},
		"Retry-After: 1":     {response{429, "", []string{"Retry-After", "1"}}, 0, 1},
		"503, Retry-After 1": {response{503, "", []string{"Retry-After", "1"}}, 0, 1},
	} {
		for _, tracked := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				start, s := time.Now(), newScript(tt.first, 200)
				tr := &Transport{Base: s, Retry: &RetryPolicy{Backoff: backoff.Constant(tt.delay)}}
				if !tracked {
					tr.Quota = &quota.Tracker{Mode: quota.Disabled}
				}
				resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoWait: true})))
				if err == nil {
					resp.Body.Close()
				}
				require.Equal(t, tt.sent, s.sent(), "%s, tracked: %v", name, tracked)
				require.Zero(t, time.Since(start), name)
			})
		}
	}
}

// TestTransport_retriesASuccessAfterAWait checks that a response below 400 which ShouldRetry rejects
// is retried after a wait for a limit, and that MaxElapsed counts from its arrival.
func TestTransport_retriesASuccessAfterAWait(t *testing.T) {
	for maxElapsed, sent := range map[time.Duration]int{0: 2, 6 * time.Second: 2, 4 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour)
			s := newScript(200, 201)
			tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 5 * time.Second}), Retry: &RetryPolicy{
				MaxElapsed: maxElapsed,
				Backoff:    backoff.Constant(0),
				ShouldRetry: func(_ *http.Request, resp *http.Response, _ error, _ bool) (bool, error) {
					return resp.StatusCode == 200, nil
				},
			}}
			start := time.Now()
			resp, err := get(t, tr)
			require.NoError(t, err)
			require.Equal(t, 199+sent, resp.StatusCode)
			require.Equal(t, sent, s.sent())
			require.Equal(t, time.Duration(sent-1)*5*time.Second, time.Since(start))
		})
	}
}

// TestTransport_firstOfTwoEqualRules checks a wait without a stated end that ends at the same instant
// by two rules: the error is that of the first rule.
func TestTransport_firstOfTwoEqualRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		s := newScript(503, 200)
		tr := &Transport{Base: s, Limiter: slots, Retry: &RetryPolicy{MaxElapsed: 10 * time.Second, Backoff: backoff.Constant(time.Second)}}
		go func() {
			time.Sleep(500 * time.Millisecond)
			_, err := slots.Reserve(t.Context(), throttle.Claim{})
			assert.NoError(t, err)
		}()
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{MaxWait: 9 * time.Second})))
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.ErrorIs(t, info.StopReason, ErrMaxElapsed)
		require.NotErrorIs(t, info.StopReason, ErrMaxWait)
		require.Equal(t, 9*time.Second, info.QueueWait)
		require.Equal(t, "", text(t, resp)[:0])
	})
}

// TestTransport_waitsOnlyIfTimeIsLeftForTheResponse sends requests to a server that takes 4 s. The
// next unit of the limit is there in 2 s. A call whose deadline is too early for both fails
// immediately, but a MaxWait does not include the response.
func TestTransport_waitsOnlyIfTimeIsLeftForTheResponse(t *testing.T) {
	for _, tt := range []struct {
		timeout, maxWait time.Duration
		took             time.Duration // 0: it fails
	}{
		{5900 * time.Millisecond, 0, 0},
		{6100 * time.Millisecond, 0, 6 * time.Second},
		{6100 * time.Millisecond, 2100 * time.Millisecond, 6 * time.Second},
		{6100 * time.Millisecond, 1900 * time.Millisecond, 0},
		{time.Minute, 2100 * time.Millisecond, 6 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(respondAfter(4*time.Second, 200))
			tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 6 * time.Second})}
			call := func(timeout, maxWait time.Duration) error {
				ctx, cancel := context.WithTimeout(WithOptions(t.Context(), RequestOptions{MaxWait: maxWait}), timeout)
				defer cancel()
				resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			require.NoError(t, call(time.Minute, 0))
			start := time.Now()
			err := call(tt.timeout, tt.maxWait)
			require.Equal(t, tt.took, time.Since(start))
			require.Equal(t, tt.took > 0, err == nil)
		})
	}
}

// TestRewindBody_freesItsBufferOnce checks that blocks go back to their pool when a body turns out
// to be too long, and not again at the end.
func TestRewindBody_freesItsBufferOnce(t *testing.T) {
	req := put(t, &opaque{Reader: strings.NewReader(strings.Repeat("x", 100))}, -1)
	r := newRewindBody(req, 60)
	b := r.newReader()
	for range 2 {
		_, err := io.CopyN(io.Discard, b, 40)
		require.NoError(t, err)
		require.Equal(t, r.overflowed, r.blocks == nil)
		require.Equal(t, r.overflowed, r.length == 0)
	}
	require.True(t, r.overflowed)
	r.finish()
	require.NoError(t, b.Close())
	require.Nil(t, r.blocks)
}

// TestOpenBodies_keepsNoRemovedBody checks that the memory of a body can be freed after its end.
func TestOpenBodies_keepsNoRemovedBody(t *testing.T) {
	o := openBodies{running: true} // so that add sets no timer
	var all []*bodyEOFSignal
	for range 5 {
		b := new(bodyEOFSignal)
		o.add(b)
		all = append(all, b)
	}
	for _, i := range []int{1, 4, 0, 2, 3} {
		o.remove(all[i])
		o.remove(all[i]) // it is not listed any more
		require.Zero(t, all[i].index)
		for _, rest := range o.bodies[len(o.bodies):cap(o.bodies)] {
			require.Nil(t, rest)
		}
		for j, b := range o.bodies {
			require.EqualValues(t, j+1, b.index)
		}
	}
	require.Empty(t, o.bodies)
}

func TestRequestAttrs_ofAnIncompleteRequest(t *testing.T) {
	u := &url.URL{Host: "api.test", Path: "/secret"}
	for _, tt := range []struct {
		req  *http.Request
		want []slog.Attr
	}{
		{&http.Request{}, []slog.Attr{slog.String("method", "GET")}},
		{&http.Request{Method: "PUT"}, []slog.Attr{slog.String("method", "PUT")}},
		{&http.Request{URL: u}, []slog.Attr{slog.String("method", "GET"), slog.String("host", "api.test")}},
	} {
		require.Equal(t, tt.want, requestAttrs(tt.req))
	}
}

// TestGiveUpError_text checks the parts of the message, and that no part is repeated.
func TestGiveUpError_text(t *testing.T) {
	wrapped := fmt.Errorf("wrapped: %w", errBroken)
	for want, e := range map[string]*GiveUpError{
		"heed: gave up before the first attempt":                                                                    {},
		"heed: gave up: broken (before the first attempt)":                                                          {Reason: errBroken},
		"heed: gave up after 1 attempt: 1: broken":                                                                  {Attempts: []Attempt{{Err: errBroken}}, Err: errBroken},
		"heed: gave up after 1 attempt: 1: wrapped: broken":                                                         {Attempts: []Attempt{{Err: wrapped}}, Err: wrapped, Reason: errBroken},
		"heed: gave up: " + ErrMaxAttempts.Error() + " (after 2 attempts): 1: 500 Internal Server Error: 2: broken": {Attempts: []Attempt{{Status: 500}, {Err: errBroken}}, Err: errBroken, Reason: ErrMaxAttempts},
		"heed: gave up after 1 attempt: 1: 404 Not Found":                                                           {Attempts: []Attempt{{Status: 404}}, QueueWait: 499 * time.Microsecond},
		"heed: gave up after 1 attempt, 0.6 ms of waiting: 1: 404 Not Found":                                        {Attempts: []Attempt{{Status: 404}}, QueueWait: 300 * time.Microsecond, BackoffWait: 300 * time.Microsecond},
		`heed: gave up: throttle: rejected by limit "api": ask again in 8.6 s: context deadline exceeded (before the first attempt, 1.5 s of waiting)`: {
			QueueWait: 1_500_400 * time.Microsecond,
			Reason:    &throttle.RejectedError{Decision: throttle.Decision{Policy: "api", Wait: 8_510_194_005}, Reason: context.DeadlineExceeded},
		},
		"heed: gave up: heed: the time for retries has elapsed: RetryPolicy.MaxElapsed is 15 min (after 1 attempt): 1: 404 Not Found": {
			Attempts: []Attempt{{Status: 404}}, Reason: &settingError{ErrMaxElapsed, "RetryPolicy.MaxElapsed", 15 * time.Minute},
		},
		"heed: gave up after 1 attempt, 3 s of waiting: waited 2 s for limit own: 1: 404 Not Found": {
			Attempts: []Attempt{{Status: 404}}, QueueWait: 2 * time.Second, BackoffWait: time.Second, LongestWait: WaitInfo{Waited: 2 * time.Second, Limit: "own"},
		},
	} {
		require.Equal(t, want, e.Error())
		require.Equal(t, e.Err != nil, errors.Is(e, errBroken) && e.Err != nil)
	}
}
