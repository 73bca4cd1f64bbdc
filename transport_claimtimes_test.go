package heed_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/rate/xtime"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/warmup"
)

// TestLimiters_claimsMayPredateTheCreation checks that claims that begin a year before the
// creation of a limiter get the same decisions as claims that begin with it.
func TestLimiters_claimsMayPredateTheCreation(t *testing.T) {
	limit := throttle.Limit{Count: 5, Per: time.Second}
	for name, create := range map[string]func() throttle.Limiter{
		"TokenBucket":  func() throttle.Limiter { return throttle.NewTokenBucket(limit) },
		"RefillBucket": func() throttle.Limiter { return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: limit}) },
		"LeakyBucket": func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: limit, Queue: 3})
		},
		"Nginx": func() throttle.Limiter {
			return throttle.NewNginx(throttle.NginxConfig{Rate: 5, Per: time.Second, Burst: 4, NoDelay: true})
		},
		"TickQueue": func() throttle.Limiter {
			return throttle.NewTickQueue(throttle.TickQueueConfig{Limit: limit, Queue: 3})
		},
		"FixedWindow": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second})
		},
		"FixedWindow, from the first claim": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtFirst})
		},
		"FixedWindow, from creation": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtCreation})
		},
		"SlidingLog": func() throttle.Limiter { return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit}) },
		"SlidingLog, rejections": func() throttle.Limiter {
			return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit, CountRejected: true})
		},
		"SlidingCounter": func() throttle.Limiter {
			return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit})
		},
		"SlidingCounter, parts": func() throttle.Limiter {
			return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit, Parts: 10})
		},
		"Concurrency": func() throttle.Limiter {
			return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 5, MaxAge: time.Second})
		},
		"SoftLimit": func() throttle.Limiter {
			return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(throttle.PerSecond(1)), Hard: throttle.NewTokenBucket(limit)})
		},
		"AllOf": func() throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(limit), throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(4)}))
		},
		"Fallback": func() throttle.Limiter {
			return throttle.NewFallback(throttle.FallbackConfig{Primary: throttle.NewTokenBucket(limit), Secondary: throttle.AllowAll})
		},
		"keyed.Limiter": func() throttle.Limiter {
			return &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.NewTokenBucket(limit) }}
		},
		"keyed.NewBuckets":        func() throttle.Limiter { return keyed.NewBuckets(keyed.BucketsConfig{Limit: limit}) },
		"keyed.NewBuckets, exact": func() throttle.Limiter { return keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Exact: true}) },
		"keyed.NewBan": func() throttle.Limiter {
			return keyed.NewBan(throttle.NewTokenBucket(limit), keyed.BanConfig{Rejections: 2, Within: time.Second, Duration: time.Second})
		},
		"adaptive.Limiter": func() throttle.Limiter {
			return adaptive.New(adaptive.Config{InitialRate: 5, Burst: time.Second})
		},
		"adaptive.Limiter without a rate": func() throttle.Limiter { return adaptive.New(adaptive.Config{}) },
		"adaptive.NewAdmissionControl": func() throttle.Limiter {
			return adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Per: 2400 * time.Millisecond, Rand: func() float64 { return .5 }})
		},
		"sketch": func() throttle.Limiter {
			return sketch.NewLimiter(sketch.LimiterConfig{Limit: limit, Clients: 100, Seed: 1})
		},
		"warmup": func() throttle.Limiter { return warmup.New(warmup.Config{Limit: limit, Period: time.Second}) },
		"warmup, outage": func() throttle.Limiter {
			return warmup.New(warmup.Config{Limit: limit, Period: time.Second, Outage: 300 * time.Millisecond})
		},
		"warmup, bursty": func() throttle.Limiter {
			return warmup.NewBursty(warmup.BurstyConfig{Limit: limit, MaxBurst: time.Second, StartFull: true})
		},
		"warmup, bursty from empty": func() throttle.Limiter {
			return warmup.NewBursty(warmup.BurstyConfig{Limit: limit, MaxBurst: time.Second})
		},
		"rate":  func() throttle.Limiter { return allower{rate.NewLimiter(5, 5)} },
		"xtime": func() throttle.Limiter { return xtime.New(xrate.NewLimiter(5, 5), "rate") },
		"rules": func() throttle.Limiter {
			set, err := rules.Parse([]byte("{domain: d, limits: [{name: five, match: /, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token_bucket}}]}"), rules.Config{})
			require.NoError(t, err)
			var ticket queue.Ticket
			require.NoError(t, set.Limits(httptest.NewRequest("GET", "/", nil), &ticket))
			return ticket.Demands[0].Limiter
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // both limiters are created at the same time
				start := time.Now()
				after := decisionsFrom(t, create(), start)
				require.Contains(t, fmt.Sprint(after), "true")
				require.Equal(t, after, decisionsFrom(t, create(), start.Add(-365*24*time.Hour)))
			})
		})
	}
}

// An allower decides by AllowN.
type allower struct{ *rate.Limiter }

func (a allower) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{OK: a.AllowN(c.Now, 1), At: c.Now}, nil
}

func (allower) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

func (allower) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// decisionsFrom makes several claims at each of many instants from start on, with a few pauses.
// Half of those that are granted end; the first ones fail.
func decisionsFrom(t *testing.T, l throttle.Limiter, start time.Time) (all []string) {
	t.Helper()
	for i := range 100 {
		for j := range 4 {
			now := start.Add(time.Duration(i)*73*time.Millisecond + time.Duration(i/25)*3*time.Second)
			c := throttle.Claim{Key: "key", Now: now, Waits: j == 0}
			d, err := throttle.ReserveAhead(t.Context(), l, c, 100*time.Millisecond)
			require.NoError(t, err)
			all = append(all, fmt.Sprint(i, d.OK, d.Wait, d.Remaining, d.ResetAfter, d.At.Sub(now), d.OverLimit))
			if d.OK && j%2 == 1 {
				f := throttle.Feedback{Outcome: throttle.Accepted, Now: now}
				if i < 30 {
					f.Outcome = throttle.Failed
				}
				l.Report(t.Context(), c, d, f)
			}
		}
	}
	return all
}
