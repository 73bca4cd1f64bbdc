// Package crawler fetches the pages of many hosts, with one limit for each host.
package crawler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// NewClient returns a client that sends each host one request per second, and fewer to those
// that ask for it. Nil as base means http.DefaultTransport.
func NewClient(base http.RoundTripper) *http.Client {
	return heed.NewClient(&heed.Transport{
		Base: base,
		Key:  heed.PerHost, // "https://www.example.com"
		Limiter: &keyed.Limiter{New: func(string) throttle.Limiter {
			return throttle.NewTokenBucket(throttle.PerSecond(1))
		}},
		Retry: &heed.RetryPolicy{AttemptTimeout: time.Minute},
	})
}

// Crawl fetches pages and calls visit with each. It returns how many failed. There is a
// goroutine per page: a host whose limit is exhausted delays no other host.
func Crawl(ctx context.Context, client *http.Client, urls []string, visit func(url string, page []byte)) (failed int) {
	var n atomic.Int64
	var all sync.WaitGroup
	for _, url := range urls {
		all.Go(func() {
			page, err := fetch(ctx, client, url)
			if err != nil {
				n.Add(1)
				return
			}
			visit(url, page)
		})
	}
	all.Wait()
	return int(n.Load())
}

const maxPage = 8 << 20 // bytes that are read of a page

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "examplebot/1.0 (+https://example.com/bot)")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPage))
}
