package main

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/redis/go-redis/v9"
)

// redisBuilder returns a function that creates the limits of a file in a Redis that the
// given number of copies of the gateway share. While Redis is unreachable or does not
// respond within timeout, each copy uses its share of the limit. A timeout of zero means 50 ms.
func redisBuilder(client redis.UniversalClient, copies int, timeout time.Duration, metrics *promheed.Collector) func(*rules.Limit) (throttle.Limiter, error) {
	store := &throttleredis.Store{Client: client, Prefix: "gateway", Timeout: max(timeout, time.Second), OnOperation: metrics.StoreOperation}
	breaker := new(throttleredis.Breaker) // shared, because there is one Redis
	return func(l *rules.Limit) (throttle.Limiter, error) {
		limit, err := redisLimit(store, l)
		if limit == nil || err != nil {
			return nil, err
		}
		shared := &throttleredis.Fallback{Limiter: limit, Processes: copies, Timeout: timeout, Breaker: breaker, OnDegraded: metrics.StoreDegraded}
		return throttleredis.CacheRejections(shared, time.Second), nil // a flood does not reach Redis
	}
}

// redisLimit returns a limiter for l in store, or nil if there is nothing to count. The
// name of a limit is part of its key, so two limits with the same numbers are counted
// separately.
func redisLimit(store *throttleredis.Store, l *rules.Limit) (throttle.Limiter, error) {
	if l.Hard != nil || len(l.Active) > 0 {
		return nil, fmt.Errorf("soft limits and hours are not kept in Redis by this gateway: leave the words out, or run it without -redis")
	}
	if l.Spec == nil {
		return nil, nil
	}
	return store.Limiter(l.ID, l.Spec)
}
