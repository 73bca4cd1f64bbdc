package throttleredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

// Four processes share 8 requests per hour, and Redis is down: each uses its share.
func ExampleFallback() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	store := &throttleredis.Store{Client: client}
	limit := &throttleredis.Fallback{
		Limiter:   store.TokenBucket(throttle.PerHour(8)),
		Processes: 4,
		Breaker: &throttleredis.Breaker{Trace: &throttleredis.BreakerTrace{
			Opened: func(error) { fmt.Println("Redis is asked less often from now on") },
		}},
	}
	for range 6 {
		d, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"})
		fmt.Println(d.OK, d.Remaining, "of", d.Limit, "without Redis:", d.Degraded, err)
	}
	// Output:
	// true 1 of 2 without Redis: true <nil>
	// true 0 of 2 without Redis: true <nil>
	// false 0 of 2 without Redis: true <nil>
	// false 0 of 2 without Redis: true <nil>
	// Redis is asked less often from now on
	// false 0 of 2 without Redis: true <nil>
	// false 0 of 2 without Redis: true <nil>
}
