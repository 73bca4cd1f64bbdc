// This consumer of heed sends one request that is retried.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/heed-go/heed"
)

func main() {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	resp, err := heed.NewClient(nil).Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	info, _ := heed.InfoFrom(resp)
	if resp.StatusCode != http.StatusOK || info.Attempts != 2 {
		log.Fatalf("status %d after %d attempts, not 200 after 2", resp.StatusCode, info.Attempts)
	}
	fmt.Println("ok")
}
