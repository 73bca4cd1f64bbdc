package heed

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// oneBreaker returns a Transport.Breaker for b.
func oneBreaker(b Breaker) func(*http.Request) Breaker {
	return func(*http.Request) Breaker { return b }
}

// A probeBreaker allows one request at a time, as a half-open breaker does.
type probeBreaker struct {
	asked, open int
	results     []error
}

func (b *probeBreaker) Allow() (func(error), error) {
	if b.asked++; b.open > 0 {
		return nil, errBroken
	}
	b.open++
	return func(err error) { b.open--; b.results = append(b.results, err) }, nil
}

// TestTransport_asksTheBreakerBeforeTheQueue checks that a call that would wait fails immediately if the
// Breaker is open, before BeforeSend, and takes no units.
func TestTransport_asksTheBreakerBeforeTheQueue(t *testing.T) {
	for name, l := range map[string]throttle.Limiter{
		"a stated end":  throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute}),
		"no stated end": throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}),
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := l.Reserve(t.Context(), throttle.Claim{Now: time.Now()})
			require.NoError(t, err)
			prepared, s := 0, newScript(200)
			tr := &Transport{Base: s, Limiter: l, Breaker: oneBreaker(&breaker{err: errBroken}),
				Retry: &RetryPolicy{BeforeSend: func(*http.Request, int) error { prepared++; return nil }}}
			start := time.Now()
			_, err = get(t, tr)
			require.Equal(t, errBroken, err, name)
			require.Zero(t, time.Since(start), name)
			time.Sleep(time.Minute)
			_, err = (&Transport{Base: s, Breaker: tr.Breaker, Retry: tr.Retry}).RoundTrip(request(t, "GET", ""))
			require.Equal(t, errBroken, err, name)
			require.Zero(t, prepared, name)
			require.Zero(t, s.sent(), name)
			require.Zero(t, tr.Parts().Queue.Snapshot().Waiting, name)
		})
	}
}

// TestTransport_aWaitKeepsThePermissionOfTheBreaker checks how often the Breaker is asked, and what it gets as
// the result: an error that matches context.Canceled if nothing was sent. No permission is lost.
func TestTransport_aWaitKeepsThePermissionOfTheBreaker(t *testing.T) {
	bucket := func() throttle.Limiter { return throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute}) }
	slots := func() throttle.Limiter { return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}) }
	for name, tt := range map[string]struct {
		limiter throttle.Limiter
		opts    RequestOptions
		timeout time.Duration
		hook    error // of BeforeSend
		asked   int
		want    error // the result that the Breaker gets
	}{
		"granted after a wait":          {bucket(), RequestOptions{}, time.Hour, nil, 1, nil},
		"BeforeSend fails after a wait": {bucket(), RequestOptions{}, time.Hour, errBroken, 1, context.Canceled},
		"BeforeSend fails":              {nil, RequestOptions{}, time.Hour, errBroken, 1, context.Canceled},
		"the deadline passes":           {slots(), RequestOptions{}, time.Second, nil, 1, context.Canceled},
		"MaxWait passes":                {slots(), RequestOptions{MaxWait: time.Second}, time.Hour, nil, 1, context.Canceled},
		"rejected immediately":          {bucket(), RequestOptions{}, time.Second, nil, 0, nil},
		"NoWait":                        {bucket(), RequestOptions{NoWait: true}, time.Hour, nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.limiter != nil {
					_, err := tt.limiter.Reserve(t.Context(), throttle.Claim{Now: time.Now()})
					require.NoError(t, err)
				}
				b, s := &probeBreaker{}, newScript(200)
				ctx, cancel := context.WithTimeout(WithOptions(t.Context(), tt.opts), tt.timeout)
				defer cancel()
				_, err := (&Transport{Base: s, Limiter: tt.limiter, Breaker: oneBreaker(b),
					Retry: &RetryPolicy{BeforeSend: func(*http.Request, int) error { return tt.hook }}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.Equal(t, tt.asked, b.asked)
				require.Len(t, b.results, tt.asked)
				require.Zero(t, b.open)
				if tt.asked > 0 {
					require.ErrorIs(t, b.results[0], tt.want)
				}
				require.Equal(t, tt.asked == 1 && tt.want == nil, err == nil)
			})
		})
	}
}

// TestTransport_aBreakerThatIgnoresCanceledCallsStaysHalfOpen checks with gobreaker that a call that could not
// be sent leaves the test request to another call.
func TestTransport_aBreakerThatIgnoresCanceledCallsStaysHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
			Timeout:     time.Second,
			ReadyToTrip: func(gobreaker.Counts) bool { return true },
			IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) },
		})
		slots, s := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), newScript(500, 200)
		tr := &Transport{Base: s, Limiter: slots, Breaker: oneBreaker(b), Retry: &RetryPolicy{MaxAttempts: -1}}
		resp, err := get(t, tr)
		require.NoError(t, err)
		text(t, resp)
		require.Equal(t, gobreaker.StateOpen, b.State())
		time.Sleep(2 * time.Second)
		d, err := slots.Reserve(t.Context(), throttle.Claim{Now: time.Now()})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gobreaker.StateHalfOpen, b.State())
		slots.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		_, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, gobreaker.StateClosed, b.State())
	})
}

// A breakerFunc is a Breaker.
type breakerFunc func() (func(error), error)

func (f breakerFunc) Allow() (done func(error), err error) { return f() }

// The error of a Breaker ends the call also if it is a rejection by a limit of the Breaker, and the limits of the Transport
// grant the request meanwhile.
func TestTransport_aRejectionOfTheBreakerIsNoneOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, rejection := 0, &throttle.RejectedError{Decision: throttle.Decision{Wait: time.Hour, ServerImposed: true, Policy: "breaker"}}
		l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		d, err := l.Reserve(t.Context(), throttle.Claim{Now: time.Now()})
		require.NoError(t, err)
		s := newScript(200)
		_, err = get(t, &Transport{Base: s, Limiter: l, Breaker: oneBreaker(breakerFunc(func() (func(error), error) {
			asked++
			l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
			return nil, rejection
		}))})
		require.ErrorIs(t, err, rejection)
		require.Equal(t, []int{1, 0}, []int{asked, s.sent()}, "asked and sent")
	})
}
