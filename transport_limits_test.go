package heed

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/rate/xtime"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/warmup"
)

// TestTransport_obeysEveryLimiter checks the Transport with each limiter that is based on
// time, all set to 5 per second. Each may grant at most 5 requests immediately and 5 more
// within a second. The queue bounds of the limiters that have one are large enough for
// all callers, because shorter queues would reject some of them.
func TestTransport_obeysEveryLimiter(t *testing.T) {
	limit := throttle.Limit{Count: 5, Per: time.Second}
	for name, limiter := range map[string]func() throttle.Limiter{
		"TokenBucket": func() throttle.Limiter { return throttle.NewTokenBucket(limit) },
		"RefillBucket": func() throttle.Limiter {
			return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: limit})
		},
		"LeakyBucket": func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: limit, Queue: 100})
		},
		"Nginx": func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 5, Per: time.Second, Burst: 104, Delay: 4})
		},
		"TickQueue": func() throttle.Limiter {
			return throttle.NewTickQueue(throttle.TickQueueConfig{Limit: limit, Queue: 100})
		},
		"FixedWindow": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second})
		},
		"FixedWindow, from creation": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtCreation})
		},
		"SlidingLog": func() throttle.Limiter { return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit}) },
		"SlidingCounter": func() throttle.Limiter {
			return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit})
		},
		"SubWindows": func() throttle.Limiter {
			return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit, Parts: 10})
		},
		"FromRate": func() throttle.Limiter { return xtime.New(rate.NewLimiter(5, 5), "rate") },
		"AllOf": func() throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(limit), throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 100, Per: time.Minute}))
		},
		"Fallback": func() throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: throttle.NewTokenBucket(limit), Secondary: throttle.AllowAll})
		},
		"Soft": func() throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(throttle.PerSecond(1)), Hard: throttle.NewTokenBucket(limit)})
		},
		"Elastic": func() throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{
				Soft:      throttle.NewTokenBucket(limit),
				CanBorrow: func(throttle.Claim, throttle.Decision) bool { return false },
			})
		},
		"keyed.Limiter": func() throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.NewTokenBucket(limit) }}
		},
		"keyed.Buckets": func() throttle.Limiter { return keyed.NewBuckets(keyed.BucketsConfig{Limit: limit}) },
		"sketch": func() throttle.Limiter {
			return sketch.NewLimiter(sketch.LimiterConfig{Limit: limit, Clients: 100})
		},
		"warmup": func() throttle.Limiter {
			return warmup.NewBursty(warmup.BurstyConfig{Limit: throttle.Limit{Count: 5, Per: time.Second}, MaxBurst: 800 * time.Millisecond})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Every third response is a failure, so that some requests are retries.
				s := newScript(200, 200, 500, 200, 200, 500, 200, 200, 500, 200, 200, 500, 200)
				tr := &Transport{Base: s, Limiter: limiter(), Quota: &quota.Tracker{}, Retry: &RetryPolicy{MaxAttempts: 20}}
				var wg sync.WaitGroup
				for range 25 {
					wg.Go(func() {
						resp, err := get(t, tr)
						if err != nil || resp.StatusCode != 200 {
							t.Error(err, resp)
						}
					})
				}
				wg.Wait()
				require.Equal(t, 25+4, s.sent())
				for i := range s.got[10:] {
					require.GreaterOrEqual(t, s.got[i+10].at-s.got[i].at, time.Second, "11 within a second")
				}
				require.Less(t, time.Since(s.start), 12*time.Second)
			})
		})
	}
}

// TestTransport_obeysLimitersNotBasedOnTime checks the Transport with the limiters that
// are not based on time.
func TestTransport_obeysLimitersNotBasedOnTime(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter throttle.Limiter
		took    time.Duration // duration of 12 requests that take a second each
	}{
		"Unlimited":   {throttle.AllowAll, time.Second},
		"Shadow":      {throttle.Shadow(throttle.DenyAll, nil), time.Second},
		"InFlight":    {throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 4}), 3 * time.Second},
		"Adaptive":    {adaptive.New(adaptive.Config{}), time.Second},
		"AcceptRatio": {adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{}), time.Second},
		"Ban": {keyed.NewBan(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 12}),
			keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Minute}), time.Second},
		"Blocked": {throttle.DenyAll, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Transport{Limiter: tt.limiter, Quota: &quota.Tracker{}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return newResponse(200, ""), nil
			})}
			start := time.Now()
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					_, err := get(t, tr)
					if tt.limiter == throttle.DenyAll {
						assert.ErrorIs(t, err, throttle.ErrRejected, name)
						return
					}
					assert.NoError(t, err, name)
				})
			}
			wg.Wait()
			require.Equal(t, tt.took, time.Since(start), name)
		})
	}
}

// TestTransport_hooksMaySetDemands checks that a Limits hook that assigns the demands of
// a ticket instead of adding them overwrites neither Limiter nor the limits of the
// server.
func TestTransport_hooksMaySetDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := 0
		s := newScript(response{429, "", []string{"Retry-After", "10"}}, 200)
		tr := &Transport{Base: s, Limiter: perMinute(), Limits: func(_ *http.Request, tk *queue.Ticket) error {
			hooks++
			tk.Demands = []throttle.Demand{{Limiter: throttle.NewTokenBucket(throttle.PerSecond(1))}}
			return nil
		}}
		for range 2 {
			resp, err := get(t, tr)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
		}
		require.Equal(t, 2, hooks)
		require.Equal(t, []time.Duration{time.Minute, time.Minute}, s.gaps())
	})
}

// TestTransport_holdsAllCallersAfterRetryAfter sends requests from 50 callers to a server
// that allows 10 per second and states only Retry-After. Usually 65 to 75 requests are
// sent, in some runs up to 125.
func TestTransport_holdsAllCallersAfterRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := throttle.NewTokenBucket(throttle.PerSecond(10))
		s := newCountingServer(t, rejectOver(allowed, "Retry-After", "1"))
		defer s.close()
		tr := &Transport{Base: s.base}
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				resp, err := get(t, tr)
				if err != nil || resp.StatusCode != 200 {
					t.Error(err, resp)
					return
				}
				resp.Body.Close()
			})
		}
		wg.Wait()
		t.Logf("sent %d, elapsed %v", s.requests.Load(), time.Since(start))
		require.LessOrEqual(t, s.requests.Load(), int64(150))
		require.Less(t, time.Since(start), 8*time.Second)
	})
}

// TestTransport_waitsOnceForRetryAfter checks that the hold in the queue and the delay of
// the retry are one wait, not two. The fifth request begins the hold.
func TestTransport_waitsOnceForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(append(repeat(5, response{429, "", []string{"Retry-After", "10"}}), 200)...)
		tr := &Transport{Base: s}
		for range 4 {
			_, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true})))
			require.NoError(t, err)
		}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.gaps()[4], 10*time.Second)
		require.LessOrEqual(t, s.gaps()[4], 12*time.Second, "and the release")
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.InDelta(t, 10.5*float64(time.Second), info.BackoffWait, float64(time.Second/2))
		require.Equal(t, s.gaps()[4], info.BackoffWait+info.QueueWait)
	})
}

func perMinute() throttle.Limiter {
	return throttle.NewTokenBucket(throttle.PerMinute(1))
}

// TestTransport_retriesARejectionWithAnyStatus checks that a POST is retried after a 403
// that states a rate limit, as GitHub sends it, and not after any other 403.
func TestTransport_retriesARejectionWithAnyStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			headers []string
			sent    int
		}{
			{[]string{"Retry-After", "2", "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "2"}, 2},
			{nil, 1},
		} {
			s := newScript(response{403, "", tt.headers}, 200)
			_, err := (&Transport{Base: s}).RoundTrip(request(t, "POST", "x"))
			require.NoError(t, err)
			require.Equal(t, tt.sent, s.sent())
		}
	})
}

// TestTransport_sameLimiterTwiceFails checks that a request fails immediately if Transport.Limits and
// Transport.Limiter together ask a limit for more units than it has.
func TestTransport_sameLimiterTwiceFails(t *testing.T) {
	for name, l := range map[string]throttle.Limiter{
		"concurrency": throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}),
		"bucket":      throttle.NewTokenBucket(throttle.PerSecond(10).WithBurst(1)),
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Transport{Base: newScript(200), Limiter: l, Limits: func(_ *http.Request, tk *queue.Ticket) error {
				tk.Add(throttle.Demand{Limiter: l})
				return nil
			}}
			start := time.Now()
			_, err := get(t, tr)
			require.ErrorIs(t, err, throttle.ErrRejected, name)
			require.Zero(t, time.Since(start), name)
		})
	}
}

// TestTransport_sameLimiterTwiceIsNotAlwaysSeen checks what happens where it is not seen that a request needs two units
// of a limit of one: it waits until its deadline, the error names the limit, and no unit is lost.
func TestTransport_sameLimiterTwiceIsNotAlwaysSeen(t *testing.T) {
	for name, transport := range map[string]func(l throttle.Limiter, base http.RoundTripper) http.RoundTripper{
		"nested Transports": func(l throttle.Limiter, base http.RoundTripper) http.RoundTripper {
			q := new(queue.Queue)
			return &Transport{Limiter: l, Queue: q, Base: &Transport{Limiter: l, Queue: q, Base: base}}
		},
		"a wrapper": func(l throttle.Limiter, base http.RoundTripper) http.RoundTripper {
			return &Transport{Limiter: l, Base: base, Limits: func(_ *http.Request, tk *queue.Ticket) error {
				tk.Add(throttle.Demand{Limiter: struct{ throttle.Limiter }{l}})
				return nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1, Name: "slots"}), newScript(200)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err := transport(l, s).RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "waited 1 h for limit slots")
				require.Equal(t, time.Hour, time.Since(s.start))
				require.Zero(t, s.sent())
				d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
				require.True(t, d.OK)
			})
		})
	}
}
