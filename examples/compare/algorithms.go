package main

import (
	"math/rand/v2"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate/xtime"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

type (
	clk     = throttle.Clock
	limiter = throttle.Limiter
)

// An algorithm is a limiter of 60 requests per minute.
type algorithm struct {
	name string
	one  func(clk) limiter

	// many returns a limiter for the given number of clients. Nil means a keyed.Limiter of
	// the limiters that one returns.
	many func(clk, int) limiter
}

var algorithms = []algorithm{
	{"none", func(clk) limiter { return throttle.AllowAll }, nil},
	{"token bucket", bucket, nil},
	{"token bucket of 10", func(c clk) limiter { return rejecting{throttle.WithClock(throttle.NewTokenBucket(short), c)} }, nil},
	{"token bucket, one of many", forHundred(buckets), buckets},
	{"token bucket, refilled each minute", func(c clk) limiter {
		return throttle.WithClock(throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: limit, Anchor: start}), c)
	}, nil},
	{"x/time/rate", func(c clk) limiter { return throttle.WithClock(xtime.New(xrate.NewLimiter(1, 60), "rate"), c) }, nil},
	{"leaky bucket of 10, queue of 5", func(c clk) limiter {
		return throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: short, Queue: 5}), c)
	}, nil},
	{"nginx burst=10", func(c clk) limiter {
		return throttle.WithClock(throttle.NewNginx(throttle.NginxConfig{Rate: 60, Per: time.Minute, Burst: 10}), c)
	}, nil},
	{"nginx burst=59 nodelay", func(c clk) limiter {
		return throttle.WithClock(throttle.NewNginx(throttle.NginxConfig{Rate: 60, Per: time.Minute, Burst: 59, NoDelay: true}), c)
	}, nil},
	{"queue served by ticks", func(c clk) limiter {
		return throttle.WithClock(throttle.NewTickQueue(throttle.TickQueueConfig{Limit: limit, Queue: 10}), c)
	}, nil},
	{"fixed window, by the clock", func(c clk) limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 60, Per: time.Minute}), c)
	}, nil},
	{"fixed window, from the first", func(c clk) limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 60, Per: time.Minute, Align: throttle.AtFirst}), c)
	}, nil},
	{"permits per period", func(c clk) limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 60, Per: time.Minute, Align: throttle.AtCreation}), c)
	}, nil},
	{"sliding log", func(c clk) limiter {
		return throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit}), c)
	}, nil},
	{"sliding log, rejections count", func(c clk) limiter {
		return throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit, CountRejected: true}), c)
	}, nil},
	{"sliding counter", func(c clk) limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit}), c)
	}, nil},
	{"6 sub-windows", func(c clk) limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit, Parts: 6}), c)
	}, nil},
	{"sketch", forHundred(sketched), sketched},
	{"one at a time", func(c clk) limiter {
		return throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), c)
	}, nil},
	{"ban after 30 rejections", forHundred(banned), banned},
	{"soft, 10 % more", func(c clk) limiter {
		return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: bucket(c), Hard: throttle.WithClock(throttle.NewTokenBucket(limit.PlusPercent(10)), c)})
	}, nil},
	{"adaptive", func(c clk) limiter { return throttle.WithClock(adaptive.New(adaptive.Config{}), c) }, nil},
	{"admission control", func(c clk) limiter {
		return throttle.WithClock(adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{Rand: rand.New(rand.NewPCG(1, 2)).Float64}), c)
	}, nil},
	{"warm-up of 20 s", func(c clk) limiter {
		return throttle.WithClock(warmup.New(warmup.Config{Limit: limit, Period: 20 * time.Second}), c)
	}, nil},
	{"saves up 10 s of idle time", func(c clk) limiter {
		return throttle.WithClock(warmup.NewBursty(warmup.BurstyConfig{Limit: limit, MaxBurst: 10 * time.Second}), c)
	}, nil},
}

var short = throttle.Limit{Count: 60, Per: time.Minute, Burst: 10}

func bucket(c clk) limiter { return rejecting{throttle.WithClock(throttle.NewTokenBucket(limit), c)} }

// rejecting is a limiter that rejects claims instead of booking ahead.
type rejecting struct{ limiter }

// Traits implements throttle.Limiter.
func (r rejecting) Traits() throttle.Traits {
	t := r.limiter.Traits()
	t.BooksAhead = false
	return t
}

func buckets(c clk, clients int) limiter {
	return throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: clients}), c)
}

func sketched(c clk, clients int) limiter {
	return throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{Limit: limit, Clients: int64(clients), Seed: 1}), c)
}

func banned(c clk, clients int) limiter {
	s := keyed.BanConfig{Rejections: 30, Within: 10 * time.Second, Duration: time.Minute, MaxKeys: clients}
	return throttle.WithClock(keyed.NewBan(buckets(c, clients), s), c)
}

func forHundred(many func(clk, int) limiter) func(clk) limiter {
	return func(c clk) limiter { return many(c, 100) }
}
