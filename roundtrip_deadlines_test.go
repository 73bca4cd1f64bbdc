package heed

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestTransport_leaksNothingWheneverCanceled cancels a call with several attempts, waits
// and a slow response after each tenth of a second of its duration. The synctest bubble
// fails if a goroutine remains.
func TestTransport_leaksNothingWheneverCanceled(t *testing.T) {
	ended := 0
	for at := time.Duration(0); at < 9*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(at, cancel)
			limit := &concurrencyLimit{max: 1}
			tr := &Transport{
				Base:    newScript(500, response{429, "wait", []string{"Retry-After", "2"}}, errConnRefused, respondAfter(1500*time.Millisecond, 200)),
				Retry:   &RetryPolicy{AttemptTimeout: time.Minute, Backoff: backoff.Constant(time.Second)},
				Limiter: throttle.AllOf(limit, throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 1500 * time.Millisecond})),
			}
			body := &opaque{Reader: strings.NewReader("abc")}
			resp, err := tr.RoundTrip(put(t, body, -1).WithContext(ctx))
			if err == nil {
				ended++
				require.Equal(t, 200, resp.StatusCode)
				resp.Body.Close()
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, at, time.Since(tr.Base.(*scriptServer).start))
			}
			synctest.Wait()
			s := tr.Base.(*scriptServer)
			require.Equal(t, s.opened, s.closed)
			require.Equal(t, 1, body.closed)
			require.Zero(t, limit.held())
			cancel()
		})
	}
	require.Positive(t, ended)
	require.Less(t, ended, 45)
}

// TestTransport_queueWaitBeyondDeadlineIsATimeout checks the error of a client with a
// Timeout if the wait in the queue would be longer.
func TestTransport_queueWaitBeyondDeadlineIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		c := NewClient(&Transport{Base: s, Limiter: perMinute()})
		c.Timeout = 10 * time.Second
		for range 2 {
			resp, err := c.Get("http://me:secret@api.test/?key=secret")
			if s.sent() == 1 && err == nil {
				resp.Body.Close()
				continue
			}
			var u *url.Error
			require.ErrorAs(t, err, &u)
			require.True(t, u.Timeout())
			require.ErrorIs(t, err, throttle.ErrRejected)
			require.ErrorContains(t, u.Err, " (before the first attempt)")
			require.NotContains(t, u.Err.Error(), "api.test", "url.Error says method and URL")
		}
		require.Equal(t, 1, s.sent())
		require.Zero(t, time.Since(s.start))
	})
}

// TestClient_timeoutIncludesQueueWait checks that a request that waits in the queue for
// six of ten seconds has four seconds left for its response.
func TestClient_timeoutIncludesQueueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		c := NewClient(&Transport{
			Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 6 * time.Second}),
			Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(start))
				select {
				case <-time.After(5 * time.Second):
					return newResponse(200, ""), nil
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}),
		})
		c.Timeout = 10 * time.Second
		var wg sync.WaitGroup
		for i, want := range []time.Duration{5 * time.Second, 10 * time.Second} {
			wg.Go(func() {
				time.Sleep(time.Duration(i)) // sets the order
				_, err := c.Get("http://api.test/")
				if took := time.Since(start).Round(time.Second); took != want || (err == nil) != (i == 0) {
					t.Errorf("call %d: %v after %v", i, err, took)
				}
			})
		}
		wg.Wait()
		require.Equal(t, []time.Duration{0, 6 * time.Second}, sent)
	})
}

// TestTransport_addsLittleLoadToAnOutage sends requests from 100 clients, each with its
// own budget, to a server that is down for a minute.
func TestTransport_addsLittleLoadToAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 100
		s := newScript(errors.New("down"))
		var first int
		var mu sync.Mutex
		var wg sync.WaitGroup
		start := time.Now()
		for i := range clients {
			tr := &Transport{Base: s, Retry: &RetryPolicy{Budget: &backoff.Budget{MinPerSecond: 0.1}}}
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / clients)
				for time.Since(start) < time.Minute {
					mu.Lock()
					first++
					mu.Unlock()
					get(t, tr)
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		t.Logf("an outage of %v, %d clients: %d requests for %d first attempts, %.3f each; 1.2 each and one in 10 s for each client are allowed: %.0f",
			time.Since(start).Round(time.Second), clients, s.sent(), first, float64(s.sent())/float64(first), 1.2*float64(first)+6*clients)
		require.Greater(t, first, clients)
		require.LessOrEqual(t, float64(s.sent()), 1.2*float64(first)+6*clients)
	})
}

// TestTransport_returnsLastResponseWhenQueueIsTooLong checks that the last response is
// returned if it was discarded for a retry whose wait in the queue then turns out to be
// longer than the deadline.
func TestTransport_returnsLastResponseWhenQueueIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []any{500, errBroken} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			s := newScript(step)
			tr := &Transport{Base: s, Retry: threeAttempts(), Limiter: perMinute()}
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.Equal(t, time.Second, time.Since(s.start))
			require.Equal(t, 1, s.sent())
			if step == 500 {
				require.NoError(t, err)
				require.Equal(t, "answer 1", text(t, resp))
				info, _ := InfoFrom(resp)
				require.ErrorIs(t, info.StopReason, context.DeadlineExceeded)
			} else {
				require.ErrorIs(t, err, errBroken)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var g *GiveUpError
				require.ErrorAs(t, err, &g)
				require.True(t, g.Timeout())
			}
			cancel()
		}
	})
}

// waitRules are the rules for the waits of one call.
type waitRules struct {
	opts     RequestOptions
	deadline time.Duration // 0: none
	policy   RetryPolicy
}

// TestTransport_appliesDeadlineRulesInOrder checks that a wait of about 100 s that breaks
// several rules fails immediately with the error of the first, for each kind of wait.
func TestTransport_appliesDeadlineRulesInOrder(t *testing.T) {
	rules := []struct {
		name    string
		set     func(*waitRules)
		err     error
		setting string
	}{
		{"NoWait", func(r *waitRules) { r.opts.NoWait = true }, ErrMaxWait, "RequestOptions.NoWait is true"},
		{"deadline", func(r *waitRules) { r.deadline = 50 * time.Second }, context.DeadlineExceeded, ""},
		{"MaxElapsed", func(r *waitRules) { r.policy.MaxElapsed = 40 * time.Second }, ErrMaxElapsed, "RetryPolicy.MaxElapsed is 40s"},
		{"RequestOptions.MaxWait", func(r *waitRules) { r.opts.MaxWait = 30 * time.Second }, ErrMaxWait, "RequestOptions.MaxWait is 30s"},
		{"RetryPolicy.MaxServerWait", func(r *waitRules) { r.policy.MaxServerWait = 20 * time.Second }, ErrMaxWait, "RetryPolicy.MaxServerWait is 20s"},
	}
	per100s := throttle.Limit{Count: 1, Per: 100 * time.Second}
	for name, wait := range map[string]struct {
		except  string // the rules that do not apply
		retried bool
		tr      func() *Transport
	}{
		"start delay": {"MaxElapsed RetryPolicy.MaxServerWait", false, func() *Transport {
			return &Transport{Base: newScript(200), StartJitter: 200 * time.Second, StartSeed: deviceSeed}
		}},
		"queue": {"MaxElapsed RetryPolicy.MaxServerWait", false, func() *Transport {
			l := throttle.NewTokenBucket(per100s)
			_, err := l.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			return &Transport{Base: newScript(200), Limiter: l}
		}},
		"queue, for a limit of the server": {"MaxElapsed", false, func() *Transport {
			next := time.Now().Add(100 * time.Second)
			return &Transport{Base: newScript(200), Limiter: serverLimit{next: &next}}
		}},
		"queue, before a retry": {"RetryPolicy.MaxServerWait", true, func() *Transport {
			return &Transport{Base: newScript(503, 200), Limiter: throttle.NewTokenBucket(per100s)}
		}},
		"delay before a retry": {"", true, func() *Transport {
			return &Transport{Base: newScript(response{503, "", []string{"Retry-After", "100"}}, 200)}
		}},
	} {
		for first := range rules {
			if strings.Contains(wait.except, rules[first].name) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				r := waitRules{policy: RetryPolicy{Backoff: backoff.Constant(0), MaxServerWait: -1, MaxElapsed: -1}}
				for _, rule := range rules[first:] {
					rule.set(&r)
				}
				tr := wait.tr()
				tr.Retry = &r.policy
				ctx := WithOptions(t.Context(), r.opts)
				if r.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, r.deadline)
					defer cancel()
				}
				start := time.Now()
				resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
				if wait.retried {
					require.NoError(t, err, name)
					info, _ := InfoFrom(resp)
					err = info.StopReason
				}
				require.ErrorIs(t, err, rules[first].err, name+": "+rules[first].name)
				require.Contains(t, explain.RoundDurations(err.Error()), explain.RoundDurations(rules[first].setting)) // a GiveUpError rounds them
				require.Zero(t, time.Since(start), name)
				require.LessOrEqual(t, tr.Base.(*scriptServer).sent(), 1)
			})
		}
	}
}
