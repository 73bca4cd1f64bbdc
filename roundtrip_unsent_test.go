package heed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// recorder is a limiter that grants everything and counts how its grants end.
type recorder struct {
	mu                           sync.Mutex
	granted, cancelled, observed int
	contextErrs                  []error // errors of the contexts of Observe and Cancel
}

func (l *recorder) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.DryRun {
		l.granted++
	}
	return throttle.Decision{OK: true, Policy: "recorder", At: c.Now}, nil
}

func (l *recorder) Report(ctx context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cancelled++
		l.contextErrs = append(l.contextErrs, ctx.Err())
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.State != throttle.Ongoing {
		l.observed++
	}
	l.contextErrs = append(l.contextErrs, ctx.Err())
}

// Traits implements throttle.Limiter.
func (l *recorder) Traits() throttle.Traits { return throttle.Traits{} }

// ends returns the numbers of grants, of canceled and of observed ones.
func (l *recorder) ends() [3]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [3]int{l.granted, l.cancelled, l.observed}
}

// attemptBreaker is a Breaker that allows a number of attempts.
type attemptBreaker struct{ left int }

func (b *attemptBreaker) Allow() (func(error), error) {
	if b.left == 0 {
		return nil, errBroken
	}
	b.left--
	return func(error) {}, nil
}

// TestTransport_cancelsTheClaimOfAnAttemptThatIsNotSent checks that the claim of a retry
// that is not sent is canceled before the last response is returned. The claim of that
// response was observed.
func TestTransport_cancelsTheClaimOfAnAttemptThatIsNotSent(t *testing.T) {
	for name, tr := range map[string]*Transport{
		"the Breaker rejects": func() *Transport {
			b := &attemptBreaker{left: 1}
			return &Transport{Breaker: func(*http.Request) Breaker { return b }}
		}(),
	} {
		synctest.Test(t, func(t *testing.T) {
			l, s := &recorder{}, newScript(503)
			tr.Base, tr.Limiter = s, l
			resp, err := get(t, tr)
			require.NoError(t, err, name)
			require.Equal(t, [3]int{2, 1, 1}, l.ends(), name)
			require.Equal(t, "answer 1", text(t, resp), name)
			require.Equal(t, [3]int{2, 1, 1}, l.ends(), name)
			require.Equal(t, 1, s.sent(), name)
		})
	}
}

// TestTransport_anErrorOfBeforeSendEndsTheCall checks that the claim of the attempt is
// canceled and the body closed, and that RoundTrip returns the error, also if an earlier
// attempt got a response.
func TestTransport_anErrorOfBeforeSendEndsTheCall(t *testing.T) {
	for _, cause := range []error{errors.New("no signature"), context.DeadlineExceeded, context.Canceled} {
		for name, tt := range map[string]struct {
			policy RetryPolicy
			fails  int // the attempt before which BeforeSend fails
		}{
			"first attempt":                {RetryPolicy{}, 1},
			"first attempt, with a timer":  {RetryPolicy{AttemptTimeout: time.Minute}, 1},
			"second attempt":               {RetryPolicy{}, 2},
			"second attempt, with a timer": {RetryPolicy{AttemptTimeout: time.Minute}, 2},
		} {
			synctest.Test(t, func(t *testing.T) {
				l, s, body := &recorder{}, newScript(503), &opaque{Reader: strings.NewReader("x")}
				tt.policy.BeforeSend = func(_ *http.Request, attempt int) error {
					if attempt == tt.fails {
						return cause
					}
					return nil
				}
				resp, err := (&Transport{Base: s, Limiter: l, Retry: &tt.policy}).RoundTrip(put(t, body, 1))
				require.Nil(t, resp)
				require.ErrorIs(t, err, cause, name)
				require.ErrorContains(t, err, "heed: RetryPolicy.BeforeSend: ", name)
				var g *GiveUpError
				require.Equal(t, tt.fails > 1, errors.As(err, &g), name)
				require.Equal(t, [3]int{tt.fails, 1, tt.fails - 1}, l.ends(), name)
				require.Equal(t, tt.fails-1, s.sent(), name)
				require.Equal(t, 1, body.closed, name)
				require.Equal(t, s.opened, s.closed, name)
			})
		}
	}
}

func TestTransport_returnsUnitsOfAnAttemptThatIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Hour, Burst: 2})
		b := &attemptBreaker{left: 1}
		_, err := get(t, &Transport{Base: newScript(503), Limiter: bucket, Breaker: func(*http.Request) Breaker { return b }})
		require.NoError(t, err)
		d, err := bucket.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 1, d.Remaining)
	})
}

// TestTransport_aPanicEndsGrantsAndClosesBodies checks that a grant ends exactly once
// after a panic, with the State Unused if the attempt was not sent and Ended if it was, and
// that the bodies of request and response are closed.
func TestTransport_aPanicEndsGrantsAndClosesBodies(t *testing.T) {
	for name, tt := range map[string]struct {
		tr   *Transport
		want [3]int
	}{
		"Limits":  {&Transport{Limits: func(*http.Request, *queue.Ticket) error { panic("hook") }}, [3]int{0, 0, 0}},
		"Admit":   {&Transport{Trace: &Trace{WaitDone: boom[WaitInfo]}}, [3]int{1, 1, 0}},
		"Breaker": {&Transport{Breaker: func(*http.Request) Breaker { panic("hook") }}, [3]int{1, 1, 0}},
		"Send":    {&Transport{Trace: &Trace{AttemptStart: boom[AttemptInfo]}}, [3]int{1, 1, 0}},
		"Base":    {&Transport{Base: baseFunc(func(*http.Request) (*http.Response, error) { panic("hook") })}, [3]int{1, 0, 1}},
		"done":    {&Transport{Breaker: func(*http.Request) Breaker { return panickingBreaker{} }}, [3]int{1, 0, 1}},
		"Answer":  {&Transport{Trace: &Trace{AttemptDone: boom[AttemptInfo]}}, [3]int{1, 0, 1}},
		"Retry":   {&Transport{Trace: &Trace{Retry: boom[RetryInfo]}}, [3]int{1, 0, 1}},
		"Prepare": {&Transport{Retry: &RetryPolicy{BeforeSend: func(*http.Request, int) error { panic("hook") }}}, [3]int{1, 1, 0}},
		"Prepare of the second attempt": {&Transport{Retry: &RetryPolicy{BeforeSend: func(_ *http.Request, attempt int) error {
			if attempt == 2 {
				panic("hook")
			}
			return nil
		}}}, [3]int{2, 1, 1}},
		"Done": {&Transport{Trace: &Trace{Done: boom[DoneInfo]}}, [3]int{5, 0, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := &recorder{}, newScript(500)
				tt.tr.Limiter = l
				var sender http.RoundTripper = s
				if tt.tr.Base != nil {
					sender = tt.tr.Base
				}
				tt.tr.Base = baseFunc(func(r *http.Request) (*http.Response, error) {
					defer r.Body.Close()
					return sender.RoundTrip(r)
				})
				for _, kept := range []bool{false, true} {
					*l = recorder{}
					body := &opaque{Reader: strings.NewReader("x")}
					req := put(t, body, 1)
					if kept {
						req.GetBody = func() (io.ReadCloser, error) { return &opaque{Reader: strings.NewReader("x")}, nil }
					}
					require.PanicsWithValue(t, "hook", func() { tt.tr.RoundTrip(req) })
					require.Equal(t, tt.want, l.ends())
					require.Positive(t, body.closed)
					require.Equal(t, s.opened, s.closed)
				}
			})
		})
	}
}

// boom is a function of a Trace that panics.
func boom[I any](*http.Request, I) { panic("hook") }

// panickingBreaker is a Breaker whose done function panics.
type panickingBreaker struct{}

func (panickingBreaker) Allow() (func(error), error) { return func(error) { panic("hook") }, nil }

// TestTransport_closesTheBodyOnceIfNothingIsSent checks that the Transport closes the
// request body once if nothing is sent.
func TestTransport_closesTheBodyOnceIfNothingIsSent(t *testing.T) {
	getBody := func() (io.ReadCloser, error) { return &opaque{Reader: strings.NewReader("x")}, nil }
	for name, tt := range map[string]struct {
		tr      *Transport
		getBody func() (io.ReadCloser, error)
		request RequestOptions
	}{
		"the Breaker rejects":                         {&Transport{}, nil, RequestOptions{}},
		"the Breaker rejects a body with GetBody":     {&Transport{}, getBody, RequestOptions{}},
		"the Breaker rejects, and there is a timer":   {&Transport{Retry: &RetryPolicy{AttemptTimeout: time.Second}}, getBody, RequestOptions{}},
		"the Breaker rejects a body that is not kept": {&Transport{Retry: &RetryPolicy{AttemptTimeout: time.Second, MaxBodyBuffer: -1}}, nil, RequestOptions{}},
		"the Breaker rejects, and there is no retry":  {&Transport{Retry: &RetryPolicy{AttemptTimeout: time.Second}}, nil, RequestOptions{NoRetry: true}},
	} {
		s, body := newScript(200), &opaque{Reader: strings.NewReader("x")}
		tt.tr.Base = s
		tt.tr.Breaker = func(*http.Request) Breaker { return &attemptBreaker{} }
		req := put(t, body, 1)
		req.GetBody = tt.getBody
		_, err := tt.tr.RoundTrip(req.WithContext(WithOptions(t.Context(), tt.request)))
		require.Error(t, err, name)
		require.Equal(t, 1, body.closed, name)
		require.Zero(t, s.sent(), name)
	}
}

// contextBody is a response body that cannot be read after the end of the context of its
// request.
type contextBody struct {
	*opaque
	ctx context.Context
}

func (d contextBody) Read(p []byte) (int, error) {
	if d.ctx.Err() != nil {
		return 0, context.Cause(d.ctx)
	}
	return d.opaque.Read(p)
}

// TestTransport_responseAtAttemptTimeoutIsWholeOrATimeout checks that a response that
// arrives at AttemptTimeout is returned with a readable body, or closed and reported as a
// timeout. Either may happen.
func TestTransport_responseAtAttemptTimeoutIsWholeOrATimeout(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			body := &opaque{Reader: strings.NewReader("hello")}
			resp, err := get(t, &Transport{
				Retry: &RetryPolicy{AttemptTimeout: 100 * time.Millisecond, MaxAttempts: -1},
				Base: baseFunc(func(r *http.Request) (*http.Response, error) {
					time.Sleep(100 * time.Millisecond)
					resp := newResponse(200, "hello")
					resp.Body = contextBody{body, r.Context()}
					return resp, nil
				}),
			})
			if err == nil {
				require.Equal(t, "hello", text(t, resp))
			} else {
				require.Nil(t, resp)
				require.ErrorIs(t, err, errAttemptTimeout)
			}
			require.Equal(t, 1, body.closed)
		})
	}
}
