// Memory prints the bytes of heap that the zero heed.Transport takes, and those that it keeps
// for each host that it has called: one that states a limit in its responses, and one that
// states none. The responses come from memory.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bench/internal/heap"
)

const (
	transports = 1000
	hosts      = 4000 // a Tracker keeps 4096 accounts
	routes     = 3
)

func main() {
	asJSON := flag.Bool("json", false, "print a line of JSON")
	flag.Parse()
	stated := http.Header{"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"4000"}, "X-Ratelimit-Reset": {"3600"}}
	result := map[string]uint64{
		"transport":   perTransport(),
		"host":        perHost(nil),
		"host_stated": perHost(stated),
	}
	if *asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			log.Fatal("memory: ", err)
		}
		return
	}
	fmt.Printf("bytes per Transport: %d\nbytes per host that states no limit: %d\nbytes per host that states a limit: %d\n",
		result["transport"], result["host"], result["host_stated"])
}

func perTransport() uint64 {
	clients := make([]*http.Client, transports)
	before := heap.InUse()
	for i := range clients {
		clients[i] = newClient(nil)
		get(clients[i], "http://example.com/")
	}
	used := uint64(heap.InUse() - before)
	runtime.KeepAlive(clients)
	return used / transports
}

func perHost(header http.Header) uint64 {
	client := newClient(header)
	get(client, "http://example.com/")
	before := heap.InUse()
	for i := range hosts {
		for route := range routes {
			get(client, fmt.Sprintf("http://host%d.example.com/%c", i, 'a'+route))
		}
	}
	used := uint64(heap.InUse() - before)
	runtime.KeepAlive(client)
	return used / hosts
}

func newClient(header http.Header) *http.Client {
	return heed.NewClient(&heed.Transport{Base: responder{header}})
}

// responder is a RoundTripper whose responses have a header.
type responder struct{ header http.Header }

func (r responder) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: r.header.Clone(), Body: http.NoBody, Request: req}, nil
}

func get(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		log.Fatal("memory: ", err)
	}
	resp.Body.Close()
}
