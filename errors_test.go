package heed

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestTransport_reportsErrRetryForbidden(t *testing.T) {
	for header, value := range map[string]string{"X-Should-Retry": "false", "Stripe-Should-Retry": "false", "Grpc-Retry-Pushback-Ms": "-1"} {
		s := newScript(response{503, "no", []string{header, value}})
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.ErrorIs(t, info.StopReason, ErrRetryForbidden)
		require.Equal(t, 1, s.sent())
	}
	resp, err := get(t, &Transport{Base: newScript(response{200, "yes", []string{"X-Should-Retry", "false"}})})
	require.NoError(t, err)
	_, ok := InfoFrom(resp)
	require.False(t, ok, "a success forbids nothing")
}

func TestGiveUpError_isANetError(t *testing.T) {
	slow := &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	for name, tt := range map[string]struct {
		err                *GiveUpError
		timeout, temporary bool
	}{
		"the last attempt timed out":       {&GiveUpError{Err: slow}, true, true},
		"a deadline was too near":          {&GiveUpError{Reason: context.DeadlineExceeded}, true, true},
		"the wait was too long":            {&GiveUpError{Reason: ErrMaxWait}, false, false},
		"the last attempt was broken":      {&GiveUpError{Err: errBroken, Reason: ErrMaxAttempts}, false, false},
		"the last attempt was temporarily": {&GiveUpError{Err: &net.DNSError{IsTemporary: true}}, false, true},
	} {
		var e net.Error
		require.True(t, errors.As(error(tt.err), &e), name)
		require.Equal(t, tt.timeout, e.Timeout(), name)
		require.Equal(t, tt.temporary, e.Temporary(), name) //nolint:staticcheck // part of net.Error
		require.Equal(t, tt.timeout, (&url.Error{Err: tt.err}).Timeout(), name)
	}
}

// TestTransport_namesTheExceededSetting checks that Info.StopReason and
// GiveUpError.Reason contain the setting that was exceeded, and its value.
func TestTransport_namesTheExceededSetting(t *testing.T) {
	slowDown := response{429, "", []string{"Retry-After", "60"}}
	for want, tt := range map[string]struct {
		retry RetryPolicy
		opts  RequestOptions
		step  any
	}{
		"heed: no attempts are left: RetryPolicy.MaxAttempts is 2":                     {RetryPolicy{MaxAttempts: 2}, RequestOptions{}, 500},
		"heed: no attempts are left: RetryPolicy.MaxAttempts is 3":                     {RetryPolicy{MaxAttempts: 3, MaxFailures: 2}, RequestOptions{}, response{429, "", []string{"Retry-After", "1"}}},
		"heed: no attempts are left: RetryPolicy.MaxFailures is 2":                     {RetryPolicy{MaxFailures: 2}, RequestOptions{}, 500},
		"heed: no attempts are left: RetryPolicy.MaxFailures is 5":                     {RetryPolicy{}, RequestOptions{}, 500},
		"heed: the time for retries has elapsed: RetryPolicy.MaxBackoff is 3s":         {RetryPolicy{MaxBackoff: 3 * time.Second}, RequestOptions{}, 500},
		"heed: the wait is too long: RetryPolicy.MaxServerWait is 30s":                 {RetryPolicy{MaxServerWait: 30 * time.Second}, RequestOptions{}, slowDown},
		"heed: the wait is too long: RequestOptions.MaxWait is 20s":                    {RetryPolicy{MaxServerWait: 30 * time.Second}, RequestOptions{MaxWait: 20 * time.Second}, slowDown},
		"heed: the time for retries has elapsed: RetryPolicy.MaxElapsed is 10s":        {RetryPolicy{MaxElapsed: 10 * time.Second}, RequestOptions{}, slowDown},
		"heed: no attempts are left: the delay of RetryPolicy.Backoff is backoff.Stop": {RetryPolicy{Backoff: backoff.Constant(backoff.Stop)}, RequestOptions{}, 500},
	} {
		synctest.Test(t, func(t *testing.T) {
			resp, err := (&Transport{Base: newScript(tt.step), Retry: &tt.retry}).RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), tt.opts)))
			require.NoError(t, err, want)
			info, ok := InfoFrom(resp)
			require.True(t, ok, want)
			require.EqualError(t, info.StopReason, want)
		})
	}
}

// TestTransport_saysThatAWaitWouldEndAfterTheDeadline checks the reason of a retry that is not
// sent because of a deadline that has not passed.
func TestTransport_saysThatAWaitWouldEndAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var gaveUp DoneInfo
		tr := &Transport{
			Base:  newScript(response{429, "", []string{"Retry-After", "3600"}}),
			Trace: &Trace{Done: func(_ *http.Request, i DoneInfo) { gaveUp = i }},
		}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.ErrorIs(t, info.StopReason, context.DeadlineExceeded)
		require.NoError(t, ctx.Err())
		require.Equal(t, "gave up: heed: a wait of 1 h would end after the deadline of the context: context deadline exceeded (after 1 attempt, the last with status 429)", gaveUp.String())
	})
}

// TestTransport_wrapsNoErrorThatIsNotAboutTime checks that an error that is not about a
// wait is returned unchanged if nothing was sent.
func TestTransport_wrapsNoErrorThatIsNotAboutTime(t *testing.T) {
	closed := new(queue.Queue)
	require.NoError(t, closed.Close())
	bucket := throttle.NewTokenBucket(throttle.PerSecond(1))
	for name, tt := range map[string]struct {
		tr   *Transport
		opts RequestOptions
		want error
	}{
		"a Breaker":       {&Transport{Breaker: func(*http.Request) Breaker { return &attemptBreaker{} }}, RequestOptions{}, errBroken},
		"a closed Queue":  {&Transport{Queue: closed, Limiter: bucket}, RequestOptions{}, queue.ErrClosed},
		"a negative cost": {&Transport{Limiter: bucket}, RequestOptions{Cost: -1}, throttle.ErrCost},
	} {
		tt.tr.Base = newScript(200)
		_, err := tt.tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), tt.opts)))
		require.ErrorIs(t, err, tt.want, name)
		var g *GiveUpError
		require.False(t, errors.As(err, &g), name)
	}
	_, err := get(t, &Transport{Base: newScript(200), Limiter: throttle.DenyAll})
	var g *GiveUpError
	require.ErrorAs(t, err, &g, "a limit that can never grant")
	require.ErrorIs(t, err, throttle.ErrRejected)
}

// TestTransport_returnsARejectionThatLastsTooLongImmediately checks that a rejection that
// states a reset beyond MaxWait or the deadline is returned immediately, also by the
// first call.
func TestTransport_returnsARejectionThatLastsTooLongImmediately(t *testing.T) {
	for _, until := range []time.Duration{11 * time.Minute, 30 * time.Minute, 25 * time.Hour, 32 * 24 * time.Hour, 400 * 24 * time.Hour} {
		for _, status := range []int{403, 429} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(s2026))
				s := newScript(func(*http.Request) (*http.Response, error) {
					return newResponse(status, "no", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(s2026.Add(until).Unix(), 10)), nil
				})
				start := time.Now()
				for _, deadline := range []time.Duration{time.Minute, 0} { // the first iteration has a deadline
					ctx := t.Context()
					tr := &Transport{Base: s}
					if deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, deadline)
						defer cancel()
						tr.Retry = &RetryPolicy{MaxServerWait: -1, MaxElapsed: -1}
					}
					resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
					require.NoError(t, err)
					require.Equal(t, status, resp.StatusCode)
					require.Equal(t, "no", text(t, resp))
					require.Zero(t, time.Since(start), until)
				}
			})
		}
	}
}

var s2026 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestGiveUpError_hasNoSecrets checks a Base that is a client of another library: its errors state
// the URL with the password and the query. A user without a password may be a key, too.
func TestGiveUpError_hasNoSecrets(t *testing.T) {
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: req.URL.String(), Err: io.ErrUnexpectedEOF}
	})
	for _, user := range []*url.Userinfo{url.User("SEKRET"), url.UserPassword("ann", "SEKRET")} {
		tr := &Transport{Base: base, Retry: &RetryPolicy{MaxAttempts: 2, Backoff: backoff.Constant(1)}}
		req, err := http.NewRequest(http.MethodGet, "http://api.test/a?token=SEKRET#SEKRET", nil)
		require.NoError(t, err)
		req.URL.User = user
		_, err = tr.RoundTrip(req)
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Len(t, g.Attempts, 2)
		require.NotContains(t, g.Error()+g.URL+g.Attempts[0].String(), "SEKRET")
		require.Contains(t, g.Error(), `Get "http://api.test/a": unexpected EOF`)
		require.Equal(t, "http://api.test/a?token=xxxxx", g.URL)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		var full *url.Error
		require.ErrorAs(t, err, &full)
		require.Contains(t, full.URL, "SEKRET", "errors.As finds the error as it is")
	}
}

// TestGiveUpError_namesTheLimitOfAWaitWithoutAnEnd checks the error of a call whose context ends while it
// waits for a limit that states no time.
func TestGiveUpError_namesTheLimitOfAWaitWithoutAnEnd(t *testing.T) {
	gone := errors.New("gone")
	for name, tt := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want error
		text string // "" if the error is the cause alone
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		}, context.DeadlineExceeded, `heed: gave up: context deadline exceeded (before the first attempt, 1 h of waiting): waited 1 h for limit uploads`},
		"deadline with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Hour, gone)
		}, gone, `heed: gave up: gone (before the first attempt, 1 h of waiting): waited 1 h for limit uploads`},
		"canceled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Hour, cancel)
			return ctx, cancel
		}, context.Canceled, ""},
		"deadline before the call": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 0)
		}, context.DeadlineExceeded, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1, Name: "uploads"})
			_, err := limit.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			ctx, cancel := tt.end(t.Context())
			defer cancel()
			_, err = (&Transport{Base: newScript(200), Limiter: limit}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.ErrorIs(t, err, tt.want, name)
			if tt.text == "" {
				require.Equal(t, tt.want, err, name)
				return
			}
			require.EqualError(t, err, tt.text, name)
			var gaveUp *GiveUpError
			require.ErrorAs(t, err, &gaveUp, name)
			require.Equal(t, "uploads", gaveUp.LongestWait.Limit, name)
			require.Equal(t, name == "deadline", gaveUp.Timeout(), name)
		})
	}
}
