package throttleredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/warmup"
)

// Each user may make 100 requests per second, in all processes together.
func ExampleStore() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	store := &throttleredis.Store{Client: client, Timeout: 100 * time.Millisecond}
	limit := store.TokenBucket(throttle.PerSecond(100))

	d, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"})
	switch {
	case err != nil:
		fmt.Println("no decision:", err) // see ExampleFallback
	case d.OK:
		fmt.Println(d.Remaining, "left")
	default:
		fmt.Println("ask again in", d.Wait)
	}
}

// All kinds of limits, with the same configurations as in memory.
func ExampleStore_limiters() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	store := &throttleredis.Store{Client: client, Prefix: "myapp"}
	perMinute := throttle.PerMinute(60)

	limits := map[string]throttle.Limiter{
		"token bucket":       store.TokenBucket(perMinute.WithBurst(10)),
		"refill bucket":      store.RefillBucket(throttle.RefillBucketConfig{Limit: perMinute}),
		"leaky bucket":       store.LeakyBucket(throttle.LeakyBucketConfig{Limit: perMinute.WithBurst(1), Queue: 10}),
		"tick queue":         store.TickQueue(throttle.TickQueueConfig{Limit: perMinute, Queue: 10}),
		"nginx":              store.Nginx(throttle.NginxConfig{Rate: 1, Per: time.Second, Burst: 5}),
		"fixed window":       store.FixedWindow(throttle.FixedWindowConfig{Count: 1000, Align: throttle.EachDay}),
		"permits per period": store.PermitsPerPeriod(10, time.Second),
		"sliding counter":    store.SlidingCounter(throttle.SlidingCounterConfig{Limit: perMinute}),
		"sliding log":        store.SlidingLog(throttle.SlidingLogConfig{Limit: perMinute}),
		"concurrency":        store.Concurrency(throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Minute}),
		"warm-up":            store.WarmUp(warmup.Config{Limit: perMinute, Period: 10 * time.Second}),
		"bursty":             store.Bursty(warmup.BurstyConfig{Limit: perMinute}),
		"ban": store.Ban(keyed.BanConfig{Rejections: 5, Within: time.Minute, Duration: time.Hour},
			store.TokenBucket(perMinute)),
	}
	for name, limit := range limits {
		d, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"})
		fmt.Println(name, d.OK, err)
	}
}

// A limit per second, one per day, and a number of requests at the same time, decided for one
// user in one round trip. The claim is ended by Report, which frees its place.
func ExampleAllOf() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	store := &throttleredis.Store{Client: client}
	limit := throttleredis.AllOf(
		store.TokenBucket(throttle.PerSecond(10)),
		store.FixedWindow(throttle.FixedWindowConfig{Count: 10_000, Align: throttle.EachDay}),
		store.Concurrency(throttle.ConcurrencyConfig{Count: 5, MaxAge: time.Minute}),
	)
	ctx, claim := context.Background(), throttle.Claim{Key: "ann"}
	d, err := limit.Reserve(ctx, claim)
	if err != nil || !d.OK {
		fmt.Println("not now:", d.Policy, d.Wait, err)
		return
	}
	defer limit.Report(ctx, claim, d, throttle.Feedback{})
	fmt.Println("working")
}
