// Herd makes many callers send requests at the same time to a server that admits ten per
// second, and measures the distribution of their retries. The server responds with
// Retry-After: 1 and states nothing else. With -example it runs examples/herd, thousands of clients in
// virtual time, and compares heed without StartJitter with a loop that has full jitter.
//
//	go run ./herd -client heed -json
//	go run ./herd -example -check
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/bench/clients"
)

type result struct {
	Client    string  `json:"client"`
	Calls     int     `json:"calls"`
	Sent      int64   `json:"sent"`
	Throttled int64   `json:"throttled"`
	Failed    int64   `json:"failed"`
	Elapsed   float64 `json:"elapsed_s"`
	Ideal     float64 `json:"ideal_s"`
	Peak      int     `json:"peak_20ms"`
}

// A server admits rate requests in each second that begins with a request.
type server struct {
	rate int

	mu       sync.Mutex
	start    time.Time
	used     int
	arrivals []time.Time
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if s.take(time.Now()) {
		fmt.Fprintln(w, "ok")
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many requests", http.StatusTooManyRequests)
}

func (s *server) take(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, now)
	if now.Sub(s.start) >= time.Second {
		s.start, s.used = now, 0
	}
	s.used++
	return s.used <= s.rate
}

// peak returns the maximum number of arrivals in any 20 ms after the first wave, which
// consists of the arrivals within half a second of the first.
func (s *server) peak() (most int) {
	slices.SortFunc(s.arrivals, time.Time.Compare)
	for i, a := range s.arrivals {
		if a.Sub(s.arrivals[0]) < time.Second/2 {
			continue
		}
		n := 0
		for _, b := range s.arrivals[i:] {
			if b.Sub(a) < 20*time.Millisecond {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func main() {
	log.SetFlags(0)
	name := flag.String("client", "heed", "one of "+strings.Join(clients.Names(), ", "))
	n := flag.Int("n", 50, "callers, one call each")
	rate := flag.Int("rate", 10, "requests a second that the server serves")
	fromExample := flag.Bool("example", false, "run examples/herd instead")
	check := flag.Bool("check", false, "with -example, exit with code 1 if heed sends more requests than full jitter")
	asJSON := flag.Bool("json", false, "print a line of JSON for each client")
	flag.Parse()
	if *fromExample {
		more, err := example("../examples/herd", *asJSON)
		if err != nil {
			log.Fatal("herd: ", err)
		}
		if more && *check {
			os.Exit(1)
		}
		return
	}
	s := &server{rate: *rate}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal("herd: ", err)
	}
	go func() { _ = http.Serve(l, s) }()
	counter := clients.NewRequestCounter(*n)
	client, err := clients.New(*name, counter, nil)
	if err != nil {
		log.Fatal("herd: ", err)
	}
	failed, took := clients.Run(client, "http://"+l.Addr().String(), *n, *n)
	ideal := float64((*n - 1) / *rate)
	r := result{*name, *n, counter.Sent.Load(), counter.Throttled.Load(), failed, took.Seconds(), ideal, s.peak()}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("%-16s %d sent, %d throttled, %d failed, %.2f s (ideal %.0f), at most %d within 20 ms after the first wave\n",
		r.Client, r.Sent, r.Throttled, r.Failed, r.Elapsed, r.Ideal, r.Peak)
}
