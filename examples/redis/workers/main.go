// Workers shows two processes that share one quota of an API: 20 requests per second, which
// are counted in Redis, and the limits that the API states. The API pauses once: it rejects
// a request of one process with a Retry-After of one second, and both processes wait.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/examples/redis/server"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

func main() {
	if len(os.Args) == 4 { // this is a worker process
		work(os.Args[1], os.Args[2], os.Args[3])
		return
	}
	url, stop := server.Start()
	defer stop()
	var a api
	apiServer := httptest.NewServer(&a)
	defer apiServer.Close()
	self, err := os.Executable()
	check(err)
	var workers sync.WaitGroup
	for _, name := range []string{"worker 1", "worker 2"} {
		workers.Go(func() {
			cmd := exec.Command(self, name, url, apiServer.URL)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			check(cmd.Run())
		})
	}
	workers.Wait()
	fmt.Printf("the API served %d requests and rejected %d\n", a.served.Load(), a.rejected.Load())
}

// work runs one process: 20 calls from 2 goroutines.
func work(name, redisURL, url string) {
	opts, err := redis.ParseURL(redisURL)
	check(err)
	opts.ContextTimeoutEnabled = true
	client := redis.NewClient(opts)
	exchange := &throttleredis.Exchange{Client: client, Prefix: url, Secret: []byte("only our workers know it")}
	store := &throttleredis.Store{Client: client, Prefix: url, Timeout: time.Second}
	limit := store.TokenBucket(throttle.Limit{Count: 20, Per: time.Second, Burst: 2})
	var rejected atomic.Int64
	api := heed.NewClient(&heed.Transport{
		Limiter: &throttleredis.Fallback{Limiter: limit, Processes: 2}, // without Redis each process uses half of the limit
		Quota:   &quota.Tracker{Exchange: exchange},
		Trace: &heed.Trace{AttemptDone: func(_ *http.Request, s heed.AttemptInfo) {
			if s.Status == http.StatusTooManyRequests {
				rejected.Add(1)
			}
		}},
	})
	start := time.Now()
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for range 10 {
				resp, err := api.Get(url + "/items")
				check(err)
				resp.Body.Close()
			}
		})
	}
	callers.Wait()
	fmt.Printf("%s made 20 calls in %.1f s, and was rejected %d times\n", name, time.Since(start).Seconds(), rejected.Load())
	check(exchange.Close(context.Background()))
	check(client.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
