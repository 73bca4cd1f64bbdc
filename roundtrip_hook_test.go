package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_beforeSendMayUseTheSameLimit checks hooks that fetch a token through the same Transport,
// each for itself or one for all, while all units of a concurrency limit are needed. Neither the limit
// nor the order of the queue is broken.
func TestTransport_beforeSendMayUseTheSameLimit(t *testing.T) {
	for name, shared := range map[string]bool{"a token each": false, "one token": true} {
		synctest.Test(t, func(t *testing.T) {
			var (
				client         *http.Client
				mu             sync.Mutex
				fetch          = make(chan struct{}, 1) // a mutex that does not stop the time of the bubble
				inFlight, most int
				sent           int
				token          bool
			)
			base := roundTripFunc(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				inFlight++
				sent++
				most = max(most, inFlight)
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				inFlight--
				mu.Unlock()
				return newResponse(200, ""), nil
			})
			getToken := func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/token", nil)
				assert.NoError(t, err)
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			policy := &RetryPolicy{BeforeSend: func(req *http.Request, _ int) error {
				if req.URL.Path == "/token" {
					return nil
				}
				if !shared {
					return getToken(req.Context())
				}
				fetch <- struct{}{}
				defer func() { <-fetch }()
				if token {
					return nil
				}
				token = true
				return getToken(req.Context())
			}}
			client = NewClient(&Transport{Base: base, Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}), Retry: policy})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					resp, err := client.Do(request(t, "GET", "").WithContext(ctx))
					if assert.NoError(t, err, name) {
						resp.Body.Close()
					}
				})
			}
			calls.Wait()
			require.LessOrEqual(t, most, 2, name)
			require.Equal(t, map[bool]int{true: 9, false: 16}[shared], sent, name)
		})
	}
}

// TestTransport_slowBeforeSendReturnsItsUnits checks how many units of a concurrency limit are free while a
// call of BeforeSend runs and after it, and that the time of the second wait does not count for
// AttemptTimeout.
func TestTransport_slowBeforeSendReturnsItsUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		hook     time.Duration
		err      error // of the hook
		during   bool  // the unit is free 100 ms before the hook ends
		occupied time.Duration
		waits    int
		took     time.Duration
	}{
		"quick":                      {hook: 999 * time.Millisecond, during: false, waits: 1, took: 999 * time.Millisecond},
		"slow":                       {hook: 2 * time.Second, during: true, waits: 2, took: 2 * time.Second},
		"slow, then it waits":        {hook: 2 * time.Second, during: true, occupied: time.Minute, waits: 2, took: 2*time.Second + time.Minute},
		"slow, and it fails":         {hook: 2 * time.Second, err: errBroken, during: true, waits: 1, took: 2 * time.Second},
		"quick, and it fails":        {hook: time.Second / 2, err: errBroken, waits: 1, took: time.Second / 2},
		"longer than AttemptTimeout": {hook: 11 * time.Second, during: true, waits: 2, took: 11 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
			free := func() bool {
				d, err := limit.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
				return d.OK
			}
			budget, q := &backoff.Budget{}, new(queue.Queue)
			policy := &RetryPolicy{MaxAttempts: 2, MaxFailures: 1, AttemptTimeout: 10 * time.Second, Budget: budget}
			var during bool
			policy.BeforeSend = func(*http.Request, int) error {
				time.Sleep(tt.hook - 100*time.Millisecond)
				during = free()
				time.Sleep(100 * time.Millisecond)
				if tt.occupied > 0 {
					other := new(queue.Ticket)
					other.Add(throttle.Demand{Limiter: limit})
					require.NoError(t, q.Try(t.Context(), other))
					time.AfterFunc(tt.occupied, func() { q.Report(context.Background(), other, throttle.Feedback{State: throttle.Unused}) })
				}
				return tt.err
			}
			waits := 0
			s := newScript(func(r *http.Request) (*http.Response, error) {
				if err := context.Cause(r.Context()); err != nil {
					return nil, err
				}
				return newResponse(200, "text"), nil
			})
			tr := &Transport{Base: s, Limiter: limit, Queue: q, Retry: policy, Trace: &Trace{WaitDone: func(*http.Request, WaitInfo) { waits++ }}}
			start := time.Now()
			resp, err := get(t, tr)
			require.Equal(t, tt.took, time.Since(start), name)
			require.Equal(t, tt.during, during, name)
			require.Equal(t, tt.waits, waits, name)
			switch {
			case tt.err != nil:
				require.ErrorIs(t, err, tt.err, name)
			case tt.hook > policy.AttemptTimeout:
				require.ErrorIs(t, err, errAttemptTimeout, name)
			default:
				require.NoError(t, err, name)
				require.False(t, free(), "%s: until the end of the body", name)
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.EqualValues(t, 1, budget.Snapshot(time.Now()).Requests, name)
			}
			time.Sleep(time.Hour)
			require.True(t, free(), name)
		})
	}
}

// TestTransport_panicOfASlowBeforeSend checks that units are returned once if BeforeSend panics after they
// were returned.
func TestTransport_panicOfASlowBeforeSend(t *testing.T) {
	for _, slow := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2})
			tr := &Transport{Base: newScript(200), Limiter: limit, Retry: &RetryPolicy{BeforeSend: func(*http.Request, int) error {
				time.Sleep(slow)
				panic("hook")
			}}}
			require.PanicsWithValue(t, "hook", func() { _, _ = get(t, tr) })
			time.Sleep(time.Minute)
			d, err := limit.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, 2, d.Remaining)
		})
	}
}
