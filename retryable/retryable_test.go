package retryable_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/retryable"
	"github.com/heed-go/heed/throttle"
)

// newClient returns a retryablehttp client that uses CheckRetry and Backoff and connects to s.
func newClient(s *heedtest.Server) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = s.Client()
	c.CheckRetry, c.Backoff = retryable.CheckRetry, retryable.Backoff
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// inMemory runs a test in a bubble with a server that sends the given responses.
func inMemory(t *testing.T, test func(t *testing.T, s *heedtest.Server), responses ...heedtest.Response) {
	synctest.Test(t, func(t *testing.T) {
		s := &heedtest.Server{Respond: heedtest.Script(responses...)}
		s.StartInMemory()
		defer s.Close()
		test(t, s)
	})
}

func status(code int, headers ...string) heedtest.Response {
	a := heedtest.Response{Status: code, Header: http.Header{}, Body: "answer"}
	for i := 0; i < len(headers); i += 2 {
		a.Header.Set(headers[i], headers[i+1])
	}
	return a
}

func request(t *testing.T, ctx context.Context, method, url string, body any) *retryablehttp.Request {
	req, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	return req
}

func TestCheckRetry_retriesSafeRequests(t *testing.T) {
	keyed := http.Header{"Idempotency-Key": {"k"}}
	for _, tt := range []struct {
		name   string
		method string
		header http.Header
		opts   heed.RequestOptions
		first  heedtest.Response
		sent   int
	}{
		{"GET 500", "GET", nil, heed.RequestOptions{}, status(500), 2},
		{"POST 500", "POST", nil, heed.RequestOptions{}, status(500), 1},
		{"POST 500 with a key", "POST", keyed, heed.RequestOptions{}, status(500), 2},
		{"POST 500, said to be idempotent", "POST", nil, heed.RequestOptions{Idempotent: true}, status(500), 2},
		{"GET 500, said to be sent once", "GET", nil, heed.RequestOptions{NoRetry: true}, status(500), 1},
		{"POST 429", "POST", nil, heed.RequestOptions{}, status(429), 2},
		{"POST 503 with Retry-After", "POST", nil, heed.RequestOptions{}, status(503, "Retry-After", "3"), 2},
		{"GET 403 that is a throttle", "GET", nil, heed.RequestOptions{}, status(403, "Retry-After", "3", "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "0"), 2},
		{"GET 403", "GET", nil, heed.RequestOptions{}, status(403), 1},
		{"GET 507", "GET", nil, heed.RequestOptions{}, status(507), 1},
		{"GET, the server says no", "GET", nil, heed.RequestOptions{}, status(503, "X-Should-Retry", "false"), 1},
		{"GET, no answer", "GET", nil, heed.RequestOptions{}, heedtest.Response{Fault: heedtest.Drop}, 2},
		{"POST, no answer", "POST", nil, heed.RequestOptions{}, heedtest.Response{Fault: heedtest.Drop}, 1},
		{"POST with a key, no answer", "POST", keyed, heed.RequestOptions{}, heedtest.Response{Fault: heedtest.Drop}, 2},
		{"POST, longer than MaxWait", "POST", nil, heed.RequestOptions{MaxWait: time.Second}, status(429, "Retry-After", "3"), 1},
		{"GET, longer than ten minutes", "GET", nil, heed.RequestOptions{}, status(429, "Retry-After", "601"), 1},
		{"GET, longer but allowed", "GET", nil, heed.RequestOptions{MaxWait: time.Hour}, status(429, "Retry-After", "601"), 2},
	} {
		for _, wrapped := range []bool{true, false} {
			inMemory(t, func(t *testing.T, s *heedtest.Server) {
				c := newClient(s)
				if wrapped {
					retryable.Wrap(c, nil)
				}
				req := request(t, heed.WithOptions(t.Context(), tt.opts), tt.method, s.URL, []byte("body"))
				for name, v := range tt.header {
					req.Header[name] = v
				}
				start := time.Now()
				resp, err := c.Do(req)
				sent := tt.sent
				if tt.header != nil && tt.first.Fault != 0 && !wrapped {
					sent = 1 // the Idempotency-Key is unknown when the request has failed without a response
				}
				require.Len(t, s.Requests(), sent, "%s, wrapped: %v", tt.name, wrapped)
				require.Empty(t, s.EarlyRetries(), tt.name)
				for _, a := range s.Requests() {
					require.Equal(t, "body", string(a.Body), tt.name)
				}
				if sent == 1 {
					require.Zero(t, time.Since(start), "%s: gives up at once", tt.name)
				}
				if err == nil {
					resp.Body.Close()
				}
			}, tt.first)
		}
	}
}

// TestCheckRetry_rejectsWaitsBeyondTheDeadline checks that a wait that exceeds the
// deadline is not started, and that the caller can read the response.
func TestCheckRetry_rejectsWaitsBeyondTheDeadline(t *testing.T) {
	inMemory(t, func(t *testing.T, s *heedtest.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		start := time.Now()
		resp, err := newClient(s).Do(request(t, ctx, "GET", s.URL, nil))
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "429 answer", resp.Status[:4]+string(body))
		require.Zero(t, time.Since(start))
	}, status(429, "Retry-After", "60"))
}

// TestCheckRetry_obeysWaitsUpToItsBounds checks waits that are exactly as long as allowed.
func TestCheckRetry_obeysWaitsUpToItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		retryAfter string
		maxWait    time.Duration
		deadline   time.Duration
		want       bool
	}{
		"ten minutes":               {"600", 0, 0, true},
		"longer":                    {"601", 0, 0, false},
		"MaxWait":                   {"7", 7 * time.Second, 0, true},
		"longer than MaxWait":       {"8", 7 * time.Second, 0, false},
		"longer than the default":   {"300", 5 * time.Minute, 0, true},
		"until the deadline":        {"60", 0, time.Minute, false},
		"before the deadline":       {"59", 0, time.Minute, true},
		"not stated":                {"", 0, time.Nanosecond, true},
		"now, just before its end":  {"0", 0, time.Nanosecond, true},
		"long, with a far deadline": {"601", 0, time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := heed.WithOptions(t.Context(), heed.RequestOptions{MaxWait: c.maxWait})
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			resp := &http.Response{StatusCode: 429, Header: http.Header{}, Request: request(t, ctx, "GET", "http://api.test", nil).Request}
			if c.retryAfter != "" {
				resp.Header.Set("Retry-After", c.retryAfter)
			}
			retry, err := retryable.CheckRetry(ctx, resp, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, retry, name)
		})
	}
}

func TestCheckRetry_errors(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	retry, err := retryable.CheckRetry(gone, nil, context.Canceled)
	require.False(t, retry)
	require.Equal(t, why, err)

	for name, tt := range map[string]struct {
		err   error
		again bool
	}{
		"GET":              {&url.Error{Op: "Get", URL: "http://api.test", Err: io.ErrUnexpectedEOF}, true},
		"POST":             {&url.Error{Op: "Post", URL: "http://api.test", Err: io.ErrUnexpectedEOF}, false},
		"unknown scheme":   {&url.Error{Op: "Get", URL: "ftp://api.test", Err: io.ErrUnexpectedEOF}, false},
		"unknown request":  {io.ErrUnexpectedEOF, false},
		"rejected in line": {&url.Error{Op: "Get", URL: "http://api.test", Err: &throttle.RejectedError{}}, false},
	} {
		retry, err := retryable.CheckRetry(t.Context(), nil, tt.err)
		require.NoError(t, err)
		require.Equal(t, tt.again, retry, name)
	}

	// A response to an unknown request may be the response to a POST.
	retry, _ = retryable.CheckRetry(t.Context(), &http.Response{StatusCode: 500}, nil)
	require.False(t, retry)
}

// TestCheckRetry_redirectLoop checks that a redirect loop is followed once and not
// retried.
func TestCheckRetry_redirectLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return status(302, "Location", "/") }}
		s.StartInMemory()
		defer s.Close()
		for _, wrapped := range []bool{false, true} {
			c, before := newClient(s), len(s.Requests())
			if wrapped {
				retryable.Wrap(c, nil)
			}
			_, err := c.Do(request(t, t.Context(), "GET", s.URL, nil))
			require.ErrorContains(t, err, "stopped after 10 redirects")
			require.Len(t, s.Requests(), before+10)
		}
	})
}

func TestBackoff_obeysRetryAfter(t *testing.T) {
	respond := func(headers ...string) *http.Response {
		a := status(429, headers...)
		return &http.Response{StatusCode: a.Status, Header: a.Header}
	}
	for range 200 {
		d := retryable.Backoff(time.Second, 10*time.Second, 0, respond("Retry-After", "60"))
		require.GreaterOrEqual(t, d, 60*time.Second)
		require.Less(t, d, 66*time.Second)
		d = retryable.Backoff(time.Second, 10*time.Second, 0, respond("Retry-After-Ms", "1500"))
		require.GreaterOrEqual(t, d, 1500*time.Millisecond)
		require.Less(t, d, 2*time.Second)
		for attempt, limit := range []time.Duration{1, 2, 4, 8, 10, 10} {
			d = retryable.Backoff(time.Second, 10*time.Second, attempt, respond())
			require.Less(t, d, limit*time.Second+1)
			require.GreaterOrEqual(t, d, time.Duration(0))
		}
		require.Zero(t, retryable.Backoff(0, 0, 5, nil))
	}
}

// TestBackoff_rangesGrow checks the ranges of the random delays, whose ends 200 draws come
// close to.
func TestBackoff_rangesGrow(t *testing.T) {
	longest := func(attempt int, resp *http.Response) (d time.Duration) {
		for range 200 {
			d = max(d, retryable.Backoff(time.Second, 10*time.Second, attempt, resp))
		}
		return d
	}
	for attempt, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		require.InEpsilon(t, want*time.Second, longest(attempt, nil), 0.2, "attempt %d", attempt)
	}
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}}
	for attempt, want := range []time.Duration{500, 1000, 2000} {
		require.InEpsilon(t, want*time.Millisecond, longest(attempt, resp)-time.Second, 0.2, "attempt %d", attempt)
	}
}

func TestWrap_everyAttemptTakesOneUnit(t *testing.T) {
	inMemory(t, func(t *testing.T, s *heedtest.Server) {
		c := newClient(s)
		c.RetryWaitMin, c.RetryWaitMax = 0, 0
		limit := throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10 * time.Second})
		retryable.Wrap(c, &heed.Transport{Limiter: limit, Retry: &heed.RetryPolicy{MaxAttempts: 7}})
		resp, err := c.Get(s.URL)
		require.NoError(t, err)
		resp.Body.Close()
		got := s.Requests()
		require.Len(t, got, 4, "theirs decide how often, ours how soon")
		for i := range got[1:] {
			require.Equal(t, 10*time.Second, got[i+1].At.Sub(got[i].At))
		}
	}, status(500), status(502), status(503))
}

// TestWrap_doesNotMultiplyAttempts checks that only the client, and not the Transport
// beneath it, retries.
func TestWrap_doesNotMultiplyAttempts(t *testing.T) {
	inMemory(t, func(t *testing.T, s *heedtest.Server) {
		c := newClient(s)
		c.RetryMax = 2
		retryable.Wrap(c, &heed.Transport{Retry: &heed.RetryPolicy{MaxAttempts: 7}})
		resp, err := c.Get(s.URL)
		require.NoError(t, err)
		resp.Body.Close()
		require.Len(t, s.Requests(), 3)
	}, status(500), status(500), status(500), status(500))
}

// TestWrap_resendsBodies checks that bodies of all types that retryablehttp supports are
// sent again completely.
func TestWrap_resendsBodies(t *testing.T) {
	for name, body := range map[string]any{
		"bytes":  []byte("all of it"),
		"string": "all of it",
		"reader": strings.NewReader("all of it"),
		"plain":  io.MultiReader(strings.NewReader("all "), strings.NewReader("of it")),
		"func":   retryablehttp.ReaderFunc(func() (io.Reader, error) { return strings.NewReader("all of it"), nil }),
	} {
		if s, ok := body.(string); ok {
			body = []byte(s)
		}
		inMemory(t, func(t *testing.T, s *heedtest.Server) {
			c := newClient(s)
			retryable.Wrap(c, nil)
			resp, err := c.Do(request(t, t.Context(), "PUT", s.URL, body))
			require.NoError(t, err)
			resp.Body.Close()
			require.Len(t, s.Requests(), 4, name)
			for _, a := range s.Requests() {
				require.Equal(t, "all of it", string(a.Body), name)
				require.NoError(t, a.BodyErr)
			}
			require.Empty(t, s.EarlyRetries())
		}, status(429, "Retry-After", "2"), heedtest.Response{Fault: heedtest.Drop}, status(503))
	}
}

func TestWrap_preservesErrors(t *testing.T) {
	inMemory(t, func(t *testing.T, s *heedtest.Server) {
		c := newClient(s)
		c.HTTPClient.Timeout, c.RetryMax = time.Second, 1
		retryable.Wrap(c, nil)
		_, err := c.Get(s.URL)
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.True(t, u.Timeout())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, s.Requests(), 2, "a timeout of one attempt is not the end")
	}, heedtest.Response{Fault: heedtest.Hang}, heedtest.Response{Fault: heedtest.Hang})
}

// TestWrap_keepsTheOtherFieldsOfTheRetryPolicy checks the copy that Wrap makes.
func TestWrap_keepsTheOtherFieldsOfTheRetryPolicy(t *testing.T) {
	inMemory(t, func(t *testing.T, s *heedtest.Server) {
		c := newClient(s)
		policy := &heed.RetryPolicy{MaxAttempts: 7, AttemptTimeout: time.Second}
		retryable.Wrap(c, &heed.Transport{Retry: policy})
		resp, err := c.Get(s.URL)
		require.NoError(t, err)
		resp.Body.Close()
		require.Len(t, s.Requests(), 2, "the first one had a timeout")
		require.Equal(t, 7, policy.MaxAttempts)
	}, heedtest.Response{Fault: heedtest.Hang})
}

// TestWrap_errorsOfIdempotentRequestsAreNoTimeouts checks the type in which Wrap hides the
// error of a request that is idempotent because of its header.
func TestWrap_errorsOfIdempotentRequestsAreNoTimeouts(t *testing.T) {
	for text, broken := range map[string]error{
		"plain":      errors.New("broken"),
		"of the net": &net.OpError{Op: "read", Err: syscall.ECONNRESET},
	} {
		for _, key := range []string{"", "k"} {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				c := newClient(&heedtest.Server{})
				c.HTTPClient.Transport = roundTripFunc(func(*http.Request) (*http.Response, error) { sent++; return nil, broken })
				c.RetryMax = 1
				retryable.Wrap(c, nil)
				req := request(t, t.Context(), "POST", "http://api.test", nil)
				if key != "" {
					req.Header.Set("Idempotency-Key", key)
				}
				_, err := c.Do(req)
				var u *url.Error
				require.ErrorAs(t, err, &u)
				require.False(t, u.Timeout(), text)
				require.ErrorIs(t, err, broken)
				require.Equal(t, 1+len(key), sent, text)
			})
		}
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWrap_doesNotModifySharedClients(t *testing.T) {
	shared, base := *http.DefaultClient, &closeRecorder{}
	c := &retryablehttp.Client{HTTPClient: &http.Client{Transport: base}}
	before := c.HTTPClient
	retryable.Wrap(c, nil)
	require.Same(t, base, before.Transport)
	c.HTTPClient.CloseIdleConnections()
	require.True(t, base.closed)

	c = &retryablehttp.Client{}
	retryable.Wrap(c, nil)
	require.NotNil(t, c.HTTPClient.Transport)
	require.Equal(t, shared, *http.DefaultClient)
}

type closeRecorder struct {
	http.RoundTripper
	closed bool
}

func (c *closeRecorder) CloseIdleConnections() { c.closed = true }
