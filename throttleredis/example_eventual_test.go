package throttleredis_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/throttleredis"
)

// A limit that hosts in three regions share. Each region has its own Redis. Decisions take no
// round trip; Store.Close ends the background work.
func ExampleEventualOptions() {
	connect := func(addr string) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	}
	store := &throttleredis.Store{
		Client: connect("redis.eu:6379"), // of this region
		Mode:   throttleredis.Eventual,
		Eventual: throttleredis.EventualOptions{
			Regions: []throttleredis.Subscriber{connect("redis.us:6379"), connect("redis.asia:6379")},
		},
	}
	defer store.Close(context.Background())
	limit := store.TokenBucket(throttle.PerSecond(1000))
	d, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"})
	if err != nil || !d.OK {
		fmt.Println("not now:", d.Wait, err)
	}
}

// Three servers share 30 requests per hour and user, and Redis is down: each of them grants
// a third.
func ExampleEventualOptions_server() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	store := &throttleredis.Store{
		Client:   client,
		Mode:     throttleredis.Eventual,
		Eventual: throttleredis.EventualOptions{MinHosts: 3},
	}
	defer store.Close(context.Background())
	middleware := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter: store.TokenBucket(throttle.PerHour(30)),
		Key:     throttlehttp.Header("X-User"),
	}}}
	handler := middleware.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	responses := map[int]int{}
	for range 30 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", "ann")
		handler.ServeHTTP(w, r)
		responses[w.Code]++
	}
	fmt.Println(responses)
	// Output:
	// map[200:10 429:20]
}
