package throttleredis_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

// Workers on several machines share 1,000 requests per second to one API. Each takes units for the next 50
// ms in Redis and sends most requests without asking it; together they never send more than the limit.
func ExampleStore_leased() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	store := &throttleredis.Store{Client: client, Mode: throttleredis.Leased}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil { // other workers get what this one has not used
			log.Print(err)
		}
	}()
	api := heed.NewClient(&heed.Transport{
		Limiter: &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerSecond(1000)), Processes: 20},
	})
	resp, err := api.Get("https://api.example.com/items/1")
	if err != nil {
		log.Print(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		log.Print(resp.Status)
	}
}
