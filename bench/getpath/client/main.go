// Client makes one call through a heed.Transport with a token bucket to a server that responds with 503
// and a body of ten bytes, then with 200 and a body. Program getpath builds it with coverage and runs it.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

func main() {
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "ten bytes\n")
	}))
	defer server.Close()
	if err := get(server.URL); err != nil {
		log.Fatal("client: ", err)
	}
	if n := received.Load(); n != 2 {
		log.Fatalf("client: the server received %d requests instead of 2", n)
	}
}

func get(url string) error {
	resp, err := heed.NewClient(&heed.Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(10))}).Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the response is %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
