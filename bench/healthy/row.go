package main

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

// A row is one kind of traffic to one kind of server.
type row struct {
	family, name string
	simulation.Scenario
	goal goal
}

// A goal bounds what heed does in a row. Calls are compared with those of the best of peers, and so are
// times.
type goal struct {
	peers  []string
	points float64 // percentage of calls that fail in addition to those of the peer
	times  float64 // time as a multiple of that of a peer that fails no more; zero means any

	elapsed  time.Duration // maximum; zero means any
	overload time.Duration // maximum of the time at which the server is overloaded; zero means any
}

// A result is one client in one row with one seed.
type result struct {
	Client     string  `json:"client"`
	Family     string  `json:"family"`
	Row        string  `json:"row"`
	Seed       int     `json:"seed"`
	Calls      int     `json:"calls"`
	Failed     int     `json:"failed"`
	Elapsed    float64 `json:"elapsed_s"`
	Mean       float64 `json:"mean_s"` // of the calls that have not failed
	Sent       int     `json:"sent"`
	Rejected   int     `json:"rejected"`
	Early      int     `json:"early"`                // requests sent again before the Retry-After of their own response
	Overloaded float64 `json:"overload_s,omitempty"` // time until the server last exceeded twice its capacity
	row        row
	lastInRow  bool
}

// run makes the calls of r with one client. It must be called in virtual time.
func (r row) run(client string, seed int) result {
	x := r.Run(clients.Constructor(client), simulation.Seed(r.family+" "+r.name, seed), nil)
	return result{
		Client: client, Family: r.family, Row: r.name, Seed: seed, Calls: x.Calls, Failed: x.Failed,
		Elapsed: x.Elapsed.Seconds(), Mean: x.Mean.Seconds(), Sent: x.Sent, Rejected: x.Rejected, Early: x.Early,
		Overloaded: x.Overloaded.Seconds(), row: r,
	}
}

// openLoop reports whether the time of a row is that of its calls, because the loop lasts
// as long with every client.
func (r row) openLoop() bool { return r.Loads[0].Interval > 0 }

const (
	ms       = time.Millisecond
	second   = time.Second
	interval = 10 * ms     // of an open loop
	short    = 300 * ms    // a deadline that leaves no time for a second
	long     = 5 * second  // a deadline
	quick    = 10 * ms     // a response
	poll     = 30 * second // a response to a long poll
	capacity = 8           // of an overloaded server
)

var (
	retries = []string{"retryablehttp"}
	plain   = []string{"plain"}
	peers   = []string{"plain", "retryablehttp"}
)

// failures are the ways in which a server fails a small share of requests.
var failures = []struct {
	name string
	simulation.Fault
}{
	{"503", simulation.Fault{Status: 503}},
	{"500", simulation.Fault{Status: 500}},
	{"drop", simulation.Fault{Drop: true}},
	{"429", simulation.Fault{Status: 429}},
	{"403", simulation.Fault{Status: 403}},
}

// rows returns all rows, in the order in which they are printed.
func rows() (all []row) {
	all = append(all, openRows()...)
	for _, f := range failures {
		for _, percent := range []float64{.1, 1, 5} {
			f.Share = percent / 100
			for _, noise := range noises(percent) {
				all = append(all, closedRow(f.name, f.Fault, percent, noise))
			}
		}
	}
	for _, f := range failures {
		for _, percent := range []float64{.1, 1, 5} {
			f.Share = percent / 100
			g := goal{peers: retries, points: .5, times: 2}
			if f.name == "403" {
				g = goal{peers: retries, points: .5, elapsed: 4 * second}
			}
			all = append(all, crowd(fmt.Sprintf("%s %v %%", f.name, percent), f.Fault, g))
		}
	}
	now := simulation.Fault{Share: .01, Status: 429, RetryAfter: []int{0}}
	all = append(all, crowd("429 Retry-After: 0 1 %", now, goal{peers: retries, points: .5, elapsed: 100 * ms}))
	for _, noise := range []float64{0, .5, 1} {
		all = append(all, row{"cold", noisy("no fault", noise), simulation.Scenario{
			Loads: []simulation.Load{{Calls: 640, Workers: 32, Deadline: short, Pause: 10 * ms}},
			Site:  simulation.Site{Latency: simulation.Latency{Mean: quick, Noise: noise}},
		}, goal{peers: retries}})
	}
	all = append(all, row{"polls", "25 of 30 s", simulation.Scenario{
		Loads: []simulation.Load{{Calls: 25}},
		Site:  simulation.Site{Latency: simulation.Latency{Mean: poll}},
	}, goal{peers: retries, elapsed: poll + 3*second}})
	for _, noise := range []float64{0, .5, 1} {
		for _, f := range failures {
			for _, percent := range []float64{30, 60} {
				if f.name == "500" || f.name == "403" {
					continue
				}
				f.Share = percent / 100
				all = append(all, row{"overload", noisy(fmt.Sprintf("%s %v %%", f.name, percent), noise),
					simulation.Overload(capacity, f.Fault, noise), goal{peers: plain, overload: 10 * second}})
			}
		}
	}
	return append(all, field()...)
}

// openRows are 100 calls a second for two minutes.
func openRows() (all []row) {
	traffic := func(deadline time.Duration, routes int) []simulation.Load {
		return []simulation.Load{{Calls: 12_000, Interval: interval, Deadline: deadline, Routes: routes}}
	}
	for _, deadline := range []time.Duration{long, short} {
		for _, f := range failures {
			for _, percent := range []float64{.1, 1, 5} {
				f.Share = percent / 100
				for _, noise := range noises(percent) {
					name := noisy(fmt.Sprintf("%s %v %%, deadline %v", f.name, percent, deadline), noise)
					all = append(all, row{"open", name, simulation.Scenario{Loads: traffic(deadline, 1),
						Site: simulation.Site{Latency: simulation.Latency{Mean: quick, Noise: noise}, Faults: []simulation.Fault{f.Fault}}},
						goal{peers: retries, points: .5}})
				}
			}
		}
		all = append(all, row{"open", fmt.Sprintf("one 429 Retry-After: 60 on 50 routes, deadline %v", deadline), simulation.Scenario{
			Loads: traffic(deadline, 50),
			Site:  simulation.Site{Latency: simulation.Latency{Mean: quick}, Faults: []simulation.Fault{once(2500, 60)}},
		}, goal{peers: retries, points: 1}})
		all = append(all, row{"open", fmt.Sprintf("six 429s Retry-After: 1 to 60 on 50 routes, deadline %v", deadline), simulation.Scenario{
			Loads: traffic(deadline, 50),
			Site: simulation.Site{Latency: simulation.Latency{Mean: quick}, Faults: []simulation.Fault{
				once(50, 5), once(900, 1), once(2500, 60), once(2510, 10), once(6000, 30), once(9000, 2)}},
		}, goal{peers: retries, points: 1}})
	}
	return all
}

// once is a 429 for the request after the first n.
func once(n, retryAfter int) simulation.Fault {
	return simulation.Fault{After: n, Requests: 1, Status: 429, RetryAfter: []int{retryAfter}}
}

// closedRow is 2,000 calls from 50 workers.
func closedRow(name string, f simulation.Fault, percent, noise float64) row {
	g := goal{peers: retries, points: .5, times: 1.2}
	if f.Status == http.StatusForbidden {
		g = goal{peers: retries, points: .5, elapsed: 2 * second}
	}
	return row{"closed", noisy(fmt.Sprintf("%s %v %%", name, percent), noise), simulation.Scenario{
		Loads: []simulation.Load{{Calls: 2000, Workers: 50}},
		Site:  simulation.Site{Latency: simulation.Latency{Mean: quick, Noise: noise}, Faults: []simulation.Fault{f}},
	}, g}
}

// crowd is 2,000 calls at the same moment.
func crowd(name string, f simulation.Fault, g goal) row {
	return row{"crowd", name, simulation.Scenario{
		Loads: []simulation.Load{{Calls: 2000}},
		Site:  simulation.Site{Latency: simulation.Latency{Mean: ms}, Faults: []simulation.Fault{f}},
	}, g}
}

// noises returns the noises of the latency for rows with a percentage: noise matters as little
// for the others.
func noises(percent float64) []float64 {
	if percent == 1 {
		return []float64{0, .5, 1}
	}
	return []float64{0}
}

func noisy(name string, noise float64) string {
	if noise == 0 {
		return name
	}
	return fmt.Sprintf("%s, noise %v", name, noise)
}

// matching returns the rows whose family and name match the expressions.
func matching(all []row, family, name *regexp.Regexp) (some []row) {
	for _, r := range all {
		if family.MatchString(r.family) && name.MatchString(r.name) {
			some = append(some, r)
		}
	}
	return some
}
