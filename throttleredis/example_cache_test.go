package throttleredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

// A client that sends a thousand requests beyond its limit of two causes one round trip per second
// for them.
func ExampleCacheRejections() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	trips := 0
	store := &throttleredis.Store{Client: client, OnOperation: func(string, time.Duration, error) { trips++ }}
	perHour := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerHour(2)), Processes: 4}
	limit := throttleredis.CacheRejections(perHour, time.Second)
	for range 1002 {
		if _, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"}); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("round trips:", trips)
}
