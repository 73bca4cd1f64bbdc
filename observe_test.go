package heed

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// refusing is a handler that a limiter stands before.
func refusing(l throttle.Limiter, headers ...string) func(http.ResponseWriter, *http.Request, int64) {
	return func(w http.ResponseWriter, r *http.Request, _ int64) {
		if d, _ := l.Reserve(r.Context(), throttle.Claim{}); !d.OK {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
}

// outcomes are what a limiter heard, with a + where the claim went on.
func (l *inflight) outcomes() string {
	var b strings.Builder
	for _, f := range l.seen {
		b.WriteString(f.Outcome.String())
		if f.More {
			b.WriteString("+")
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestTransport_tellsLimitsOnceAtTheHeadersAndOnceAtTheEnd(t *testing.T) {
	read := func(t *testing.T, resp *http.Response) { text(t, resp) }
	for name, tt := range map[string]struct {
		steps []any
		use   func(*testing.T, *http.Response)
		want  string
	}{
		"read to the end":          {[]any{200}, func(_ *testing.T, resp *http.Response) { io.ReadAll(resp.Body) }, "accepted+ accepted"},
		"closed unread":            {[]any{200}, func(_ *testing.T, resp *http.Response) { resp.Body.Close() }, "accepted+ accepted"},
		"read, and closed twice":   {[]any{200}, func(t *testing.T, resp *http.Response) { read(t, resp); resp.Body.Close() }, "accepted+ accepted"},
		"no body":                  {[]any{answer{status: 204}}, read, "accepted"},
		"discarded, then good":     {[]any{500, 200}, read, "failed+ failed accepted+ accepted"},
		"a failure without answer": {[]any{errBroken, 200}, read, "failed accepted+ accepted"},
		"given up":                 {[]any{answer{429, "no", []string{"Retry-After", "999"}}}, read, "throttled+ throttled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &inflight{max: 1}
				resp, err := get(t, &Transport{Base: plays(tt.steps...), Limiter: l})
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

// The claim of a body that is neither read nor closed ends with the context, within
// abandonedAfter: to wait for each context with a function of its own takes 160 B more
// than issue 12 allows.
func TestTransport_tellsLimitsWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &inflight{max: 1}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := (&Transport{Base: plays(200), Limiter: l}).RoundTrip(request(t, "GET", "").WithContext(ctx))
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

func TestTransport_givesBackWhatItHoldsWhenBasePanics(t *testing.T) {
	l := &inflight{max: 1}
	tr := &Transport{Limiter: l, Base: base(func(*http.Request) (*http.Response, error) { panic("base") })}
	require.Panics(t, func() { get(t, tr) })
	require.Zero(t, l.held())
}

// TestTransport_givesBackWhatItHoldsWhenAHookPanics tries every hook that is called
// while units are held.
func TestTransport_givesBackWhatItHoldsWhenAHookPanics(t *testing.T) {
	boom := func(*http.Request, Step) { panic("hook") }
	for name, tr := range map[string]*Transport{
		"granted": {Waiter: &throttle.Waiter{Trace: &throttle.WaitTrace{Granted: func(*throttle.Ticket) { panic("hook") }}}},
		"admit":   {Trace: &Trace{Admit: boom}},
		"send":    {Trace: &Trace{Send: boom}},
		"answer":  {Trace: &Trace{Answer: boom}},
		"retry":   {Trace: &Trace{Retry: boom}},
		"breaker": {Breaker: func(*http.Request) Breaker { panic("hook") }},
		"again": {Retry: &Retry{Again: func(*http.Request, *http.Response, error, bool) (bool, error) {
			panic("hook")
		}}},
	} {
		l := &inflight{max: 1}
		tr.Base, tr.Limiter = plays(500), l
		require.PanicsWithValue(t, "hook", func() { get(t, tr) }, name)
		require.Zero(t, l.held(), name)
	}
}

func TestTransport_refusesBrokenAnswersOfBase(t *testing.T) {
	closed := &opaque{Reader: strings.NewReader("x")}
	for name, b := range map[string]http.RoundTripper{
		"neither": base(func(*http.Request) (*http.Response, error) { return nil, nil }),
		"both":    base(func(*http.Request) (*http.Response, error) { return &http.Response{Body: closed}, errBroken }),
	} {
		resp, err := get(t, &Transport{Base: b, Retry: &Retry{Attempts: 1}})
		require.Nil(t, resp, name)
		require.Error(t, err, name)
	}
	require.Equal(t, 1, closed.closed)
	resp, err := get(t, &Transport{Base: base(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil })})
	require.NoError(t, err)
	require.Equal(t, http.NoBody, resp.Body)
}

// TestTransport_neverRetriesAfterAGoodAnswer: once a good answer has begun, what
// goes wrong is the caller's to handle.
func TestTransport_neverRetriesAfterAGoodAnswer(t *testing.T) {
	s := plays(func(*http.Request) (*http.Response, error) {
		resp := says(200, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("begin"), broken{errBroken}))
		return resp, nil
	})
	resp, err := get(t, &Transport{Base: s})
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.Equal(t, "begin", string(b))
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, 1, s.sent())
}

func TestTransport_refusesACostBelowZero(t *testing.T) {
	s := plays(200)
	body := &opaque{Reader: strings.NewReader("x")}
	req := put(t, body, -1).WithContext(With(t.Context(), Request{Cost: -1}))
	_, err := (&Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.PerSecond(1), nil)}).RoundTrip(req)
	require.ErrorIs(t, err, throttle.ErrCost)
	require.Zero(t, s.sent())
	require.Equal(t, 1, body.closed)
}

func TestTransport_priorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		tr := &Transport{
			Limiter: throttle.NewTokenBucket(throttle.PerSecond(1), nil),
			Base: base(func(r *http.Request) (*http.Response, error) {
				order = append(order, r.URL.Path)
				return says(200, ""), nil
			}),
		}
		send := func(path string, priority int) {
			req := request(t, "GET", "")
			req.URL.Path = path
			go tr.RoundTrip(req.WithContext(With(t.Context(), Request{Priority: priority})))
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
