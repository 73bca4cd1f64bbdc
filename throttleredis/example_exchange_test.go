package throttleredis_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttleredis"
)

// Processes that call the same API share what it states: the rejection of one holds all.
func ExampleExchange() {
	redisClient := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer redisClient.Close()
	tracker := &quota.Tracker{
		Exchange: &throttleredis.Exchange{Client: redisClient, Secret: []byte("the same in all processes")},
	}
	defer tracker.Close()

	client := heed.NewClient(&heed.Transport{Quota: tracker})
	resp, err := client.Get("https://api.example.com/items/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
}
