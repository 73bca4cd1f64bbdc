package heed

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// baseFunc is an http.RoundTripper function. It closes the request body after the call.
type baseFunc func(*http.Request) (*http.Response, error)

func (f baseFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f(r)
	if r.Body != nil {
		r.Body.Close()
	}
	if resp != nil && resp.Request == nil {
		resp.Request = r
	}
	return resp, err
}

// newResponse returns a response. headers are pairs of name and value.
func newResponse(status int, body string, headers ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, ContentLength: int64(len(body))}
	for i := 0; i < len(headers); i += 2 {
		resp.Header.Add(headers[i], headers[i+1])
	}
	if body != "" {
		resp.Body = io.NopCloser(strings.NewReader(body))
	}
	return resp
}

// script executes one step per request and repeats the last one. A step is a status, an
// error, or a function.
func script(sent *atomic.Int64, steps ...any) baseFunc {
	return func(r *http.Request) (*http.Response, error) {
		n := int(sent.Add(1)) - 1
		switch s := steps[min(n, len(steps)-1)].(type) {
		case int:
			return newResponse(s, fmt.Sprint("answer ", n+1)), nil
		case error:
			return nil, s
		case func(*http.Request) (*http.Response, error):
			return s(r)
		default:
			panic(fmt.Sprintf("a step of type %T", s))
		}
	}
}

func get(t *testing.T, tr http.RoundTripper) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.test/items", nil)
	if err != nil {
		return nil, err // not require, because get is called on many goroutines
	}
	return tr.RoundTrip(req)
}

// confirmHold sends requests through tr until their rejections make others wait: four that were sent after the first
// one had been rejected. The server must reject all of them.
func confirmHold(t *testing.T, tr *Transport) {
	t.Helper()
	for range 5 {
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true})))
		require.NoError(t, err)
	}
}

// repeat returns n times step.
func repeat(n int, step any) []any { return slices.Repeat([]any{step}, n) }

// noJitter adds nothing to a Retry-After.
var noJitter = backoff.RetryAfterJitter{Rand: func() float64 { return 0 }}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(b)
}

func TestTransport_retriesUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		tr := &Transport{Base: script(&sent, 503, 429, 200)}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "answer 3", text(t, resp))
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, 3, info.Attempts)
		require.NoError(t, info.StopReason)
	})
}

func TestTransport_spacesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var sent []time.Duration
		tr := &Transport{
			Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 2, Per: time.Second, Burst: 1}),
			Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(start))
				return newResponse(200, ""), nil
			}),
		}
		for range 3 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, "[0s 500ms 1s]", fmt.Sprint(sent))
	})
}

func TestTransport_returnsTheLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		resp, err := get(t, &Transport{Base: script(&sent, 502)})
		require.NoError(t, err)
		require.Equal(t, 502, resp.StatusCode)
		require.Equal(t, "answer 5", text(t, resp))
		require.EqualValues(t, 5, sent.Load())
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.StopReason, ErrMaxAttempts)
	})
}

func TestTransport_wrapsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		broken := errors.New("broken")
		_, err := get(t, &Transport{Base: script(&sent, 500, broken)})
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, err, ErrMaxAttempts)
		require.Len(t, g.Attempts, 5)
		require.Equal(t, "answer 1", g.Attempts[0].Body)
	})
}

// TestTransport_trackerDoesNotKeepItsQueue checks that a Tracker that several Transports
// share does not keep the Queues of those that are not used any more.
func TestTransport_trackerDoesNotKeepItsQueue(t *testing.T) {
	var tracker quota.Tracker
	resp, err := get(t, &Transport{Base: newScript(200), Quota: &tracker})
	require.NoError(t, err)
	resp.Body.Close()
	tr := &Transport{Base: newScript(200), Quota: &tracker}
	tr.resolve()
	q := weakQueue{weak.Make(tr.resolved.queue)}
	require.True(t, q.Alive())
	runtime.KeepAlive(tr)
	for range 10 { // a pooled object may keep it for two cycles
		runtime.GC()
	}
	require.False(t, q.Alive())
	q.Wake()
	runtime.KeepAlive(&tracker)
}

// The Retry-After of a failure that is not a rejection because of a limit is a suggestion: a gateway may state an hour
// although the next request succeeds (rule 1 of docs/server-limits.md speaks of rejections).
func TestTransport_aRetryAfterOfAFailureIsASuggestion(t *testing.T) {
	for _, tt := range []struct {
		status     int
		retryAfter string
		atLeast    time.Duration
		atMost     time.Duration
	}{
		{502, "3600", 5250 * time.Millisecond, 5500 * time.Millisecond},
		{500, "2", 2 * time.Second, 2 * time.Second},
		{504, "0", 0, 0},
		{503, "30", 30 * time.Second, 33 * time.Second}, // a rejection
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			resp, err := get(t, &Transport{Base: newScript(response{tt.status, "", []string{"Retry-After", tt.retryAfter}}, 200)})
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.GreaterOrEqual(t, time.Since(start), tt.atLeast, tt.status)
			require.LessOrEqual(t, time.Since(start), tt.atMost, tt.status)
		})
	}
}
