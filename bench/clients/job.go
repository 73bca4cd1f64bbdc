package clients

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Run makes n calls from c goroutines. It returns the number of calls that failed, which
// means an error or a status other than 200, and the total time.
func Run(client *http.Client, url string, n, c int) (failed int64, took time.Duration) {
	var next, failures atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if !get(client, url) {
					failures.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return failures.Load(), time.Since(start)
}

func get(client *http.Client, url string) bool {
	resp, err := client.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}
