// Stray measures what one 429 costs 1,000 calls to a server that has no limit, in
// virtual time.
//
//	go run ./bench/stray -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

const (
	calls     = 1000
	workers   = 30
	delay     = 70 * time.Millisecond
	tolerance = .25 // seconds
)

// A row is a client and the response that is a 429.
type row struct {
	client     string
	retryAfter int // seconds; negative: the 429 has no Retry-After
	response   int // 0: there is no 429
}

type result struct {
	Client     string  `json:"client"`
	RetryAfter *int    `json:"retry_after_s"` // null: the 429 has no Retry-After
	Response   int     `json:"response"`
	Elapsed    float64 `json:"elapsed_s"`
	Baseline   float64 `json:"baseline_s"` // elapsed when there is no 429
	Failed     int     `json:"failed"`
}

func main() {
	log.SetFlags(0)
	names := flag.String("client", "heed,retryablehttp", "which of "+strings.Join(clients.Names(), ", "))
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print lines of JSON instead of a table")
	flag.Parse()
	simulation.Main(func(t *testing.T) int {
		if measure(t, strings.Split(*names, ","), *asJSON) && *check {
			return 1
		}
		return 0
	})
}

// measure reports whether heed misses a goal.
func measure(t *testing.T, names []string, asJSON bool) (missed bool) {
	var rows []row
	for _, name := range names {
		rows = append(rows, row{client: name})
		for _, response := range []int{5, 100} {
			for _, retryAfter := range []int{-1, 1, 10, 60} {
				rows = append(rows, row{name, retryAfter, response})
			}
		}
	}
	baseline := 0.0
	simulation.Each(t, len(rows), func(i int) result { return rows[i].run() }, func(r result) {
		if r.Response == 0 {
			baseline = r.Elapsed
			return
		}
		r.Baseline = baseline
		missed = missed || r.Client == "heed" && !r.meetsGoal()
		show(r, asJSON)
	})
	return missed
}

// run makes all calls. It must be called in virtual time.
func (row row) run() result {
	s := simulation.NewServer(func(r simulation.Request) simulation.Response {
		response := simulation.Response{Delay: delay}
		if r.N == row.response {
			response.Status = http.StatusTooManyRequests
			if row.retryAfter >= 0 {
				response.Header = http.Header{"Retry-After": {strconv.Itoa(row.retryAfter)}}
			}
		}
		return response
	})
	defer s.Close()
	c, err := clients.New(row.client, s.Transport(workers), nil)
	if err != nil {
		panic(err)
	}
	out := simulation.Load{Calls: calls}.Closed(c, s.URL, workers)
	r := result{Client: row.client, Response: row.response, Elapsed: out.Elapsed.Seconds(), Failed: out.Failed}
	if row.retryAfter >= 0 {
		r.RetryAfter = &row.retryAfter
	}
	return r
}

// goal is the time in seconds that the calls may take: only the rejected one waits, with the default jitter of a tenth of
// backoff.RetryAfterJitter.
func (r result) goal() float64 {
	wait := 0
	if r.RetryAfter != nil {
		wait = *r.RetryAfter
	}
	return 1.1*float64(wait) + 1.1*r.Baseline + tolerance
}

func (r result) meetsGoal() bool { return r.Failed == 0 && r.Elapsed <= r.goal() }

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	header := "none"
	if r.RetryAfter != nil {
		header = strconv.Itoa(*r.RetryAfter)
	}
	verdict := "met"
	if !r.meetsGoal() {
		verdict = "missed"
	}
	fmt.Printf("%-14s Retry-After %4s as response %3d: %8.2f s, %d failed; %.2f s without it, goal %.2f s: %s\n",
		r.Client, header, r.Response, r.Elapsed, r.Failed, r.Baseline, r.goal(), verdict)
}
