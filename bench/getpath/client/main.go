// Client makes one call with the zero heed.Transport to a server that responds with 503, then
// with 200. Program getpath builds it with coverage and runs it.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/heed-go/heed"
)

func main() {
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
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
	resp, err := heed.NewClient(nil).Get(url)
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
