// Late counts the responses that arrive before the deadline of their call when a limit of
// our own is offered twice what it admits, in virtual time. A request that is sent too late
// for its response to arrive in time uses units of the limit without any effect.
//
//	go run ./bench/late -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/throttle"
)

const (
	perSecond = 50 // admitted, with a burst of 1
	interval  = 10 * time.Millisecond
	length    = time.Minute
	deadline  = 2 * time.Second
	delay     = 200 * time.Millisecond
	possible  = int(length/time.Second) * perSecond
)

// constructors are the clients: ours, and a plain client that waits for x/time/rate.
var constructors = []struct {
	name string
	make func(base http.RoundTripper) *http.Client
}{
	{"heed", func(base http.RoundTripper) *http.Client {
		bucket := throttle.NewTokenBucket(throttle.Limit{Count: perSecond, Per: time.Second, Burst: 1})
		return heed.NewClient(&heed.Transport{Base: base, Limiter: bucket})
	}},
	{"x/time/rate", func(base http.RoundTripper) *http.Client {
		return &http.Client{Transport: &limitedTransport{base, rate.NewLimiter(perSecond, 1)}}
	}},
}

// limitedTransport sends a request when limiter admits it.
type limitedTransport struct {
	base    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (w *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := w.limiter.Wait(r.Context()); err != nil {
		return nil, err
	}
	return w.base.RoundTrip(r)
}

type result struct {
	Client   string  `json:"client"`
	Offered  int     `json:"offered"`
	Sent     int     `json:"sent"`
	InTime   int     `json:"in_time"`
	Possible int     `json:"possible"`
	Share    float64 `json:"in_time_share"` // of those sent
}

func main() {
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print lines of JSON instead of a table")
	flag.Parse()
	simulation.Main(func(t *testing.T) int {
		code := 0
		simulation.Each(t, len(constructors), run, func(r result) {
			show(r, *asJSON)
			if *check && r.Client == "heed" && !r.meetsGoal() {
				code = 1
			}
		})
		return code
	})
}

// run makes all calls with one of the clients. It must be called in virtual time.
func run(i int) result {
	s := simulation.NewServer(func(simulation.Request) simulation.Response { return simulation.Response{Delay: delay} })
	defer s.Close()
	c := constructors[i].make(s.Transport(perSecond))
	out := simulation.Load{Calls: int(length / interval), Deadline: deadline}.Open(c, s.URL, interval)
	r := result{Client: constructors[i].name, Offered: out.Calls, Sent: s.Received(), InTime: out.Calls - out.Failed, Possible: possible}
	r.Share = float64(r.InTime) / float64(max(r.Sent, 1))
	return r
}

// meetsGoal reports whether r meets the goals.
func (r result) meetsGoal() bool { return r.Share >= .95 && r.InTime >= possible*95/100 }

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "met"
	if !r.meetsGoal() {
		verdict = "missed"
	}
	fmt.Printf("%-12s %d offered, %d sent, %d in time of %d possible, %.1f %% of those sent: %s\n",
		r.Client, r.Offered, r.Sent, r.InTime, r.Possible, 100*r.Share, verdict)
}
