package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/throttleredis"
)

// A node is one server of the fleet.
type node struct {
	*httptest.Server
	degraded atomic.Bool // its last decision was made without Redis
}

func start(url string, link *redisLink) *node {
	opts, err := redis.ParseURL(url)
	check(err)
	opts.ContextTimeoutEnabled, opts.MaxRetries = true, -1
	opts.Limiter = link
	store := &throttleredis.Store{Client: redis.NewClient(opts), Timeout: time.Second, Prefix: fmt.Sprint("fleet-", os.Getpid())}
	limit := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerMinute(6)), Processes: servers, Timeout: time.Second}
	n := new(node)
	middleware := &throttlehttp.Middleware{
		Rules: []throttlehttp.Rule{{Limiter: limit, Key: throttlehttp.Header("X-Client")}},
		Trace: &throttlehttp.Trace{Decided: func(_ *http.Request, d throttle.Decision) { n.degraded.Store(d.Degraded) }},
	}
	n.Server = httptest.NewServer(middleware.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	return n
}

// get sends a request of a client.
func (n *node) get(client string) *http.Response {
	req, err := http.NewRequest(http.MethodGet, n.URL, nil)
	check(err)
	req.Header.Set("X-Client", client)
	resp, err := n.Client().Do(req)
	check(err)
	check(resp.Body.Close())
	return resp
}

// A redisLink is a connection to Redis that can be interrupted.
type redisLink struct{ down atomic.Bool }

// Allow is called by go-redis before each command.
func (c *redisLink) Allow() error {
	if c.down.Load() {
		return errors.New("there is no way to Redis")
	}
	return nil
}

func (*redisLink) ReportResult(error) {}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
