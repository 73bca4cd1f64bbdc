package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

// A row is one kind of traffic to one kind of server.
type row struct {
	loop     string
	fault    string
	percent  float64
	deadline time.Duration
}

// A result is one client in one row with one seed. The seed decides which of the
// arriving requests fail; clients that retry at random times add to the variance.
type result struct {
	Client    string  `json:"client"`
	Loop      string  `json:"loop"`
	Fault     string  `json:"fault"`
	Percent   float64 `json:"percent"`
	Deadline  float64 `json:"deadline_s"` // 0: none
	Seed      int     `json:"seed"`
	Calls     int     `json:"calls"`
	Failed    int     `json:"failed"`
	Elapsed   float64 `json:"elapsed_s"`
	Sent      int     `json:"sent"`
	Overload  float64 `json:"overload_s,omitempty"` // time until the server last exceeded its capacity
	row       row
	lastInRow bool
}

const (
	retryNow        = "429 Retry-After: 0"
	singleRejection = "one 429 Retry-After: 60 on 50 routes"
	none            = "none"
)

// faults are the ways in which a healthy server fails a small share of requests.
var faults = map[string]simulation.Response{
	"503":           {Status: 503},
	"500":           {Status: 500},
	"drop":          {Drop: true},
	"429":           {Status: 429},
	"403":           {Status: 403},
	retryNow:        {Status: 429, Header: http.Header{"Retry-After": {"0"}}},
	singleRejection: {Status: 429, Header: http.Header{"Retry-After": {"60"}}},
	none:            {},
}

// rows returns all rows, in the order in which they are printed.
func rows() (all []row) {
	ordinary := []string{"503", "500", "drop", "429", "403"}
	percents := []float64{.1, 1, 5}
	deadlines := []time.Duration{5 * time.Second, 300 * time.Millisecond}
	for _, deadline := range deadlines {
		for _, fault := range ordinary {
			for _, percent := range percents {
				all = append(all, row{"open", fault, percent, deadline})
			}
		}
		all = append(all, row{"open", singleRejection, 0, deadline})
	}
	for _, loop := range []string{"closed", "crowd"} {
		for _, fault := range ordinary {
			for _, percent := range percents {
				all = append(all, row{loop, fault, percent, 0})
			}
		}
	}
	all = append(all, row{"crowd", retryNow, 1, 0}, row{"cold", none, 0, 300 * time.Millisecond}, row{"polls", none, 0, 0})
	for _, fault := range []string{"503", "drop", "429"} {
		for _, percent := range []float64{30, 60} {
			all = append(all, row{"overload", fault, percent, 5 * time.Second})
		}
	}
	return all
}

// run makes the calls of r with one client. It must be called in virtual time.
func (r row) run(client string, seed int) result {
	b := &behaviour{row: r, random: rand.New(rand.NewPCG(uint64(seed), 1)), start: time.Now()}
	b.rejectedRequest = 1000 + b.random.IntN(4000)
	s := simulation.NewServer(b.respond)
	defer s.Close()
	callers := 2000
	if r.fault == "drop" {
		callers = 0
	}
	c, err := clients.New(client, s.Transport(callers), nil)
	if err != nil {
		panic(err)
	}
	out := r.calls(c, s.URL)
	return result{
		Client: client, Loop: r.loop, Fault: r.fault, Percent: r.percent, Deadline: r.deadline.Seconds(), Seed: seed,
		Calls: out.Calls, Failed: out.Failed, Elapsed: out.Elapsed.Seconds(), Sent: s.Received(), Overload: b.overload.Seconds(),
		row: r,
	}
}

func (r row) calls(c *http.Client, url string) simulation.Outcome {
	const interval = 10 * time.Millisecond
	switch r.loop {
	case "open":
		load := simulation.Load{Calls: 12_000, Deadline: r.deadline}
		if r.fault == singleRejection {
			load.Routes = 50
		}
		return load.Open(c, url, interval)
	case "closed":
		return simulation.Load{Calls: 2000}.Closed(c, url, 50)
	case "crowd":
		return simulation.Load{Calls: 2000}.Spike(c, url)
	case "cold":
		return simulation.Load{Calls: 640, Deadline: r.deadline, Pause: 10 * time.Millisecond}.Closed(c, url, 32)
	case "polls":
		return simulation.Load{Calls: 25}.Spike(c, url)
	case "overload":
		return simulation.Load{Calls: 2000, Burst: 100, Deadline: r.deadline}.Open(c, url, interval)
	}
	panic(fmt.Sprintf("healthy: no loop %q", r.loop))
}

// A behaviour determines the responses of the server of a row.
type behaviour struct {
	row
	random          *rand.Rand
	start           time.Time
	rejectedRequest int           // the number of the request that is rejected, if only one is
	overload        time.Duration // time at which the server last exceeded its capacity
}

const (
	pollDelay  = 30 * time.Second      // of a long poll
	capacity   = 8                     // requests in flight that an overloaded server can process
	processing = 70 * time.Millisecond // of a request, with at most capacity in flight
)

func (b *behaviour) respond(r simulation.Request) simulation.Response {
	chosen := b.random.Float64()*100 < b.percent
	delay := 10 * time.Millisecond
	switch {
	case b.fault == singleRejection:
		chosen = r.N == b.rejectedRequest
	case b.loop == "crowd":
		delay = time.Millisecond
	case b.loop == "polls":
		delay = pollDelay
	case b.loop == "overload":
		delay = processing * time.Duration(max(r.InFlight, capacity)) / capacity
		if r.InFlight > 2*capacity {
			b.overload = r.At.Sub(b.start)
		}
		chosen = chosen && r.InFlight > capacity
	}
	if !chosen {
		return simulation.Response{Delay: delay}
	}
	response := faults[b.fault]
	response.Delay = delay
	return response
}

// matching returns the rows with the given loops, faults and percentages. An empty list
// matches all.
func matching(all []row, loops, faults []string, percents []string) []row {
	asked := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return slices.DeleteFunc(all, func(r row) bool {
		return !asked(loops, r.loop) || !asked(faults, r.fault) || !asked(percents, fmt.Sprint(r.percent))
	})
}
