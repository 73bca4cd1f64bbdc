package main

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/warmup"
	"github.com/redis/go-redis/v9"
)

// inRedis returns a function that keeps the limits of a file in a Redis, which so many
// copies of the gateway share. While Redis is away, or does not answer within timeout, 0
// for 50 ms, each goes on with its share, and away hears why.
func inRedis(client redis.UniversalClient, copies int, timeout time.Duration, away func(error)) func(*rules.Limit) (throttle.Limiter, error) {
	store := &throttleredis.Store{Client: client, Prefix: "gateway", Timeout: max(timeout, time.Second)}
	breaker := new(throttleredis.Breaker) // one opinion of one Redis
	return func(l *rules.Limit) (throttle.Limiter, error) {
		limit, err := limitIn(store, l)
		if limit == nil || err != nil {
			return nil, err
		}
		return &throttleredis.Fallback{Limiter: limit, Processes: copies, Timeout: timeout, Breaker: breaker, OnError: away}, nil
	}
}

// limitIn returns l in store; nil if there is nothing to count. The name of a limit is
// part of where its counts are, so two limits with the same numbers stay two.
func limitIn(store *throttleredis.Store, l *rules.Limit) (throttle.Limiter, error) {
	if l.Hard != nil || len(l.Active) > 0 {
		return nil, fmt.Errorf("soft limits and hours are not kept in Redis by this gateway: leave the words out, or run it without -redis")
	}
	switch v := l.Spec.(type) {
	case nil:
		return nil, nil
	case throttle.Limit:
		v.Name = l.Place
		return store.TokenBucket(v), nil
	case throttle.Refill:
		v.Name = l.Place
		return store.RefillBucket(v), nil
	case throttle.Leak:
		v.Name = l.Place
		return store.LeakyBucket(v), nil
	case throttle.Quota:
		v.Name = l.Place
		return store.FixedWindow(v), nil
	case throttle.Log:
		v.Name = l.Place
		return store.SlidingLog(v), nil
	case throttle.Counter:
		v.Name = l.Place
		return store.SlidingCounter(v), nil
	case throttle.Parts:
		v.Name = l.Place
		return store.SubWindows(v), nil
	case throttle.LimitReq:
		v.Name = l.Place
		return store.Nginx(v), nil
	case throttle.Capacity:
		v.Name = l.Place
		return store.InFlight(v), nil
	case warmup.Curve:
		v.Name = l.Place
		return store.WarmUp(v), nil
	}
	return nil, fmt.Errorf("%T is not kept in Redis", l.Spec)
}
