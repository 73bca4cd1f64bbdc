// Middleware measures the cost of limiting a request by its address in net/http, compared
// with four peers in alternation within one process.
//
//	go run ./middleware -json
//
// It makes two measurements. Handlers are called directly: the result is the time of ours
// divided by the time of each peer, and the bytes that both allocate, with all requests
// granted and with all requests rejected. Requests are sent to a server in memory, with each
// middleware and with none: the difference is the cost. Times are CPU time of one goroutine;
// allocations and bytes are per request; headers are those that a response contains about
// the limit.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/heed-go/heed/bench"
)

// A row is one comparison. Times are nanoseconds per request.
type row struct {
	Work                string  `json:"work"`
	Call                string  `json:"call"`
	Peer                string  `json:"peer"`
	Ns                  float64 `json:"ns"`
	PeerNs              float64 `json:"peer_ns"`
	Ratio               float64 `json:"ratio"`
	MinRatio            float64 `json:"ratio_min"`
	MaxRatio            float64 `json:"ratio_max"`
	Allocs              uint64  `json:"allocs"`
	PeerAllocs          uint64  `json:"peer_allocs"`
	Bytes               uint64  `json:"bytes"`
	PeerBytes           uint64  `json:"peer_bytes"`
	Added               float64 `json:"added_ns,omitempty"` // to requests to a server
	AddedAllocs         int64   `json:"added_allocs,omitempty"`
	Headers             int     `json:"headers"`
	RejectedHeaders     int     `json:"headers_rejected"`
	PeerHeaders         int     `json:"peer_headers"`
	PeerRejectedHeaders int     `json:"peer_headers_rejected"`
}

func main() {
	rounds := flag.Int("rounds", 8, "rounds in which every pair is measured")
	sample := flag.Duration("sample", 200*time.Millisecond, "about how long one sample takes")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	if *rounds < 1 {
		log.Fatal("middleware: -rounds must be positive")
	}
	for _, pairs := range [][]bench.Pair{bench.MiddlewarePairs(), bench.ServerPairs()} {
		results, err := bench.Compare(pairs, []int{1}, *rounds, *sample)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range results {
			show(rowOf(r), *asJSON)
		}
	}
}

func rowOf(r bench.Result) row {
	l := row{
		Work: r.Pair.Work, Call: r.Pair.Call, Peer: r.Pair.Peer, Ns: r.Heed, PeerNs: r.Theirs,
		Ratio: r.Ratio, MinRatio: r.MinRatio, MaxRatio: r.MaxRatio, Allocs: r.HeedAllocs, PeerAllocs: r.PeerAllocs,
		Bytes: r.HeedBytes, PeerBytes: r.PeerBytes,
	}
	for _, m := range bench.Middlewares() {
		switch m.Name {
		case l.Call:
			l.Headers, l.RejectedHeaders = m.HeaderCounts()
		case l.Peer:
			l.PeerHeaders, l.PeerRejectedHeaders = m.HeaderCounts()
		}
	}
	if l.PeerHeaders == 0 {
		l.Added, l.AddedAllocs = l.Ns-l.PeerNs, int64(l.Allocs)-int64(l.PeerAllocs)
	}
	return l
}

func show(l row, asJSON bool) {
	switch {
	case asJSON:
		_ = json.NewEncoder(os.Stdout).Encode(l)
	case l.PeerHeaders == 0:
		fmt.Printf("%-16s %-19s adds %6.0f ns and %2d allocations to %.0f ns; %d headers\n", l.Work, l.Call, l.Added, l.AddedAllocs, l.PeerNs, l.Headers)
	default:
		fmt.Printf("%-16s %-19s %-19s %6.0f ns by %6.0f ns = %.2f (%.2f to %.2f), allocations %d by %d, bytes %d by %d, headers %d by %d, rejected %d by %d\n",
			l.Work, l.Call, l.Peer, l.Ns, l.PeerNs, l.Ratio, l.MinRatio, l.MaxRatio, l.Allocs, l.PeerAllocs, l.Bytes, l.PeerBytes, l.Headers, l.PeerHeaders, l.RejectedHeaders, l.PeerRejectedHeaders)
	}
}
