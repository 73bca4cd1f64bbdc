package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	redisstore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

// An allow claims one unit of a key.
type allow func(ctx context.Context, key string) (bool, error)

// A contender creates limiters with a number of units per hour for each key. heed is the
// first.
type contender struct {
	name string
	make func(c *redis.Client, perHour int, prefix string) (allow, error)
}

var contenders = []contender{
	{"heed", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		return heed(c, throttleredis.Grouped, perHour, prefix), nil
	}},
	{"heed, Synchronous", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		return heed(c, throttleredis.Synchronous, perHour, prefix), nil
	}},
	{"heed, Leased", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		return heed(c, throttleredis.Leased, perHour, prefix), nil
	}},
	{"go-redis/redis_rate", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		return redisRate(redis_rate.NewLimiter(c), perHour, prefix), nil
	}},
	{"ulule/limiter", ulule},
	{"throttled", throttledGCRA},
	{"an empty script", func(c *redis.Client, _ int, prefix string) (allow, error) { return emptyScript(c, prefix), nil }},
	{"heed, AutoPipeline", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		p, err := c.AutoPipeline()
		return heed(p, throttleredis.Synchronous, perHour, prefix), err
	}},
	{"redis_rate, AutoPipeline", func(c *redis.Client, perHour int, prefix string) (allow, error) {
		p, err := c.AutoPipeline()
		return redisRate(redis_rate.NewLimiter(p), perHour, prefix), err
	}},
}

func heed(c redis.Scripter, mode throttleredis.Mode, perHour int, prefix string) allow {
	store := &throttleredis.Store{Client: c, Prefix: prefix, Mode: mode}
	l := store.TokenBucket(throttle.PerHour(int64(perHour)))
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Reserve(ctx, throttle.Claim{Key: key})
		return d.OK, err
	}
}

func redisRate(l *redis_rate.Limiter, perHour int, prefix string) allow {
	limit := redis_rate.PerHour(perHour)
	return func(ctx context.Context, key string) (bool, error) {
		r, err := l.Allow(ctx, prefix+key, limit)
		return err == nil && r.Allowed > 0, err
	}
}

// emptyScript makes no decision. It is the minimum time of any limiter that runs a script
// per decision.
func emptyScript(c *redis.Client, prefix string) allow {
	script := redis.NewScript("return 1")
	return func(ctx context.Context, key string) (bool, error) {
		err := script.Run(ctx, c, []string{prefix + key}).Err()
		return err == nil, err
	}
}

// ulule supports only fixed windows.
func ulule(c *redis.Client, perHour int, prefix string) (allow, error) {
	store, err := redisstore.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	l := limiter.New(store, limiter.Rate{Period: time.Hour, Limit: int64(perHour)})
	return func(ctx context.Context, key string) (bool, error) {
		r, err := l.Get(ctx, key)
		return err == nil && !r.Reached, err
	}, nil
}

// throttledGCRA makes two requests: to read the state, and to change it unless it has
// changed in between. It returns an error after several concurrent changes.
func throttledGCRA(c *redis.Client, perHour int, prefix string) (allow, error) {
	store, err := goredisstore.NewCtx(c, prefix)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(perHour), MaxBurst: perHour - 1})
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}, nil
}
