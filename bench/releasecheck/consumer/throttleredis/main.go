// This consumer of throttleredis uses its fallback, as there is no Redis.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	store := &throttleredis.Store{Client: client}
	limit := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerHour(8)), Processes: 4}
	d, err := limit.Reserve(context.Background(), throttle.Claim{Key: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	if !d.OK || !d.Degraded || d.Limit != 2 {
		log.Fatalf("%+v, not a grant of the fallback with a limit of 2", d)
	}
	fmt.Println("ok")
}
