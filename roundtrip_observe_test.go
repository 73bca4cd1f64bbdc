package heed

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// rejectOver returns a handler that responds with 429 if l rejects the request.
func rejectOver(l throttle.Limiter, headers ...string) func(http.ResponseWriter, *http.Request, int64) {
	return func(w http.ResponseWriter, r *http.Request, _ int64) {
		if d, _ := l.Reserve(r.Context(), throttle.Claim{}); !d.OK {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
}

// outcomes returns the outcomes that l observed. A + marks those with State Ongoing.
func (l *concurrencyLimit) outcomes() string {
	var b strings.Builder
	for _, f := range l.observed {
		b.WriteString(f.Outcome.String())
		if f.State == throttle.Ongoing {
			b.WriteString("+")
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestTransport_observesAtHeadersAndAtBodyEnd(t *testing.T) {
	read := func(t *testing.T, resp *http.Response) { text(t, resp) }
	for name, tt := range map[string]struct {
		steps []any
		use   func(*testing.T, *http.Response)
		want  string
	}{
		"read to the end":          {[]any{200}, func(_ *testing.T, resp *http.Response) { io.ReadAll(resp.Body) }, "accepted+ accepted"},
		"closed unread":            {[]any{200}, func(_ *testing.T, resp *http.Response) { resp.Body.Close() }, "accepted+ accepted"},
		"read, and closed twice":   {[]any{200}, func(t *testing.T, resp *http.Response) { read(t, resp); resp.Body.Close() }, "accepted+ accepted"},
		"no body":                  {[]any{response{status: 204}}, read, "accepted"},
		"discarded, then good":     {[]any{500, 200}, read, "failed+ failed accepted+ accepted"},
		"a failure without answer": {[]any{errBroken, 200}, read, "failed accepted+ accepted"},
		"given up":                 {[]any{response{429, "no", []string{"Retry-After", "999"}}}, read, "throttled+ throttled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &concurrencyLimit{max: 1}
				resp, err := get(t, &Transport{Base: newScript(tt.steps...), Limiter: l})
				require.NoError(t, err)
				if resp.Body != http.NoBody {
					require.Equal(t, 1, l.held())
				}
				tt.use(t, resp)
				require.Zero(t, l.held())
				require.Equal(t, tt.want, l.outcomes())
			})
		})
	}
}

// TestTransport_observesWhenTheContextEnds checks that the claim of a body that is
// neither read nor closed ends within abandonedAfter of the end of the context. A
// context.AfterFunc per body would allocate 160 B more than the limit.
func TestTransport_observesWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &concurrencyLimit{max: 1}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := (&Transport{Base: newScript(200), Limiter: l}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, l.held())
		cancel()
		time.Sleep(abandonedAfter)
		synctest.Wait()
		require.Zero(t, l.held())
		require.Equal(t, "accepted+ accepted", l.outcomes())
	})
}

func TestTransport_releasesGrantsWhenBasePanics(t *testing.T) {
	l := &concurrencyLimit{max: 1}
	tr := &Transport{Limiter: l, Base: baseFunc(func(*http.Request) (*http.Response, error) { panic("base") })}
	require.Panics(t, func() { get(t, tr) })
	require.Zero(t, l.held())
}

// TestTransport_releasesGrantsWhenAHookPanics panics in each hook that is called while
// units are held.
func TestTransport_releasesGrantsWhenAHookPanics(t *testing.T) {
	for name, tr := range map[string]*Transport{
		"granted": {Queue: &queue.Queue{Trace: &queue.Trace{Granted: func(*queue.Ticket) { panic("hook") }}}},
		"admit":   {Trace: &Trace{WaitDone: boom[WaitInfo]}},
		"send":    {Trace: &Trace{AttemptStart: boom[AttemptInfo]}},
		"answer":  {Trace: &Trace{AttemptDone: boom[AttemptInfo]}},
		"retry":   {Trace: &Trace{Retry: boom[RetryInfo]}},
		"breaker": {Breaker: func(*http.Request) Breaker { panic("hook") }},
		"again": {Retry: &RetryPolicy{ShouldRetry: func(*http.Request, *http.Response, error, bool) (bool, error) {
			panic("hook")
		}}},
	} {
		l := &concurrencyLimit{max: 1}
		tr.Base, tr.Limiter = newScript(500), l
		require.PanicsWithValue(t, "hook", func() { get(t, tr) }, name)
		require.Zero(t, l.held(), name)
	}
}

func TestTransport_rejectsInvalidResultsOfBase(t *testing.T) {
	closed := &opaque{Reader: strings.NewReader("x")}
	for name, b := range map[string]http.RoundTripper{
		"neither": baseFunc(func(*http.Request) (*http.Response, error) { return nil, nil }),
		"both":    baseFunc(func(*http.Request) (*http.Response, error) { return &http.Response{Body: closed}, errBroken }),
	} {
		resp, err := get(t, &Transport{Base: b, Retry: &RetryPolicy{MaxAttempts: 1}})
		require.Nil(t, resp, name)
		require.Error(t, err, name)
	}
	require.Equal(t, 1, closed.closed)
	resp, err := get(t, &Transport{Base: baseFunc(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil })})
	require.NoError(t, err)
	require.Equal(t, http.NoBody, resp.Body)
}

// TestTransport_neverRetriesASuccess checks that a request is not retried after a
// successful response has begun; later errors are returned to the caller.
func TestTransport_neverRetriesASuccess(t *testing.T) {
	s := newScript(func(*http.Request) (*http.Response, error) {
		resp := newResponse(200, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("begin"), httpbody.ErrReader{Err: errBroken}))
		return resp, nil
	})
	resp, err := get(t, &Transport{Base: s})
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.Equal(t, "begin", string(b))
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, 1, s.sent())
}

func TestTransport_rejectsANegativeCost(t *testing.T) {
	s := newScript(200)
	body := &opaque{Reader: strings.NewReader("x")}
	req := put(t, body, -1).WithContext(WithOptions(t.Context(), RequestOptions{Cost: -1}))
	_, err := (&Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.PerSecond(1))}).RoundTrip(req)
	require.ErrorIs(t, err, throttle.ErrCost)
	require.Zero(t, s.sent())
	require.Equal(t, 1, body.closed)
}

func TestTransport_sendsHighPriorityFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		tr := &Transport{
			Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)),
			Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				order = append(order, r.URL.Path)
				return newResponse(200, ""), nil
			}),
		}
		send := func(path string, priority int) {
			req := request(t, "GET", "")
			req.URL.Path = path
			go tr.RoundTrip(req.WithContext(WithOptions(t.Context(), RequestOptions{Priority: priority})))
			synctest.Wait()
		}
		send("/first", 0)
		send("/low", 0)
		send("/high", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"/first", "/high", "/low"}, order)
	})
}
