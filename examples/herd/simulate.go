package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// callsPerClient is the number of calls that a client makes at the same time.
const callsPerClient = 2

// patience is the time for which a client tries, after the server can serve.
const patience = time.Minute

// A scenario is what happens to the clients.
type scenario struct {
	name        string
	description string
	downtime    time.Duration // the server is down for so long after the clients wake
}

var scenarios = []scenario{
	{"noon", "all clients wake at 12:00:00 and send 2 requests each", 0},
	{"outage", "all clients lose their connections at the same time, and the server is down for 60 s", time.Minute},
}

// capacity returns the requests per second that the server can serve, which is all calls in
// 20 s, and how many of them may arrive at the same time.
func capacity(clients int) (rate, burst int) {
	rate = max(clients*callsPerClient/20, 1)
	return rate, max(rate/10, 10)
}

// A result describes how a scenario went with one strategy.
type result struct {
	scenario scenario
	strategy string
	clients  int
	arrivals []arrival // in their order
	failed   int       // calls that the server did not serve in time
}

// simulate runs each scenario with each strategy, in virtual time and as many in parallel as
// there are processors. The results are those of the first scenario, then those of the
// second.
func simulate(t *testing.T, clients int) []result {
	results := make([]result, len(scenarios)*len(strategies))
	t.Run("simulate", func(t *testing.T) {
		for i := range results {
			c, s := scenarios[i/len(strategies)], strategies[i%len(strategies)]
			t.Run(c.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(*testing.T) { results[i] = c.run(s, clients) })
			})
		}
	})
	return results
}

// run makes the calls of all clients. It must be called in virtual time.
func (c scenario) run(s strategy, clients int) result {
	rate, burst := capacity(clients)
	server := newServer(rate, burst, c.downtime)
	ctx, cancel := context.WithTimeout(context.Background(), c.downtime+patience)
	defer cancel()
	r := result{scenario: c, strategy: s.name, clients: clients}
	var running sync.WaitGroup
	var mu sync.Mutex
	for id := range clients {
		do := s.client(id, &network{server: server, random: rand.New(rand.NewPCG(uint64(id), 2))})
		for range callsPerClient {
			running.Go(func() {
				if do(ctx) != nil {
					mu.Lock()
					r.failed++
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	r.arrivals = server.arrivals
	return r
}

// served returns when each served request arrived, in their order.
func (r result) served() (at []time.Duration) {
	for _, a := range r.arrivals {
		if a.served {
			at = append(at, a.at)
		}
	}
	return at
}

// peakInterval is the time in which arrivals are counted for peaks.
const peakInterval = 100 * time.Millisecond

// firstWave returns the most requests that arrived within peakInterval in the first second.
func (r result) firstWave() int { return r.peak(0, time.Second) }

// laterPeak returns the most requests that arrived within peakInterval once the server can
// serve, without those of the first second.
func (r result) laterPeak() int {
	return r.peak(max(r.scenario.downtime, time.Second), r.scenario.downtime+patience)
}

// peak returns the most requests that arrived within peakInterval, from one time to another.
func (r result) peak(from, to time.Duration) (most int) {
	first := 0
	for i, a := range r.arrivals {
		if a.at < from || a.at >= to {
			first = i + 1
			continue
		}
		for a.at-r.arrivals[first].at >= peakInterval {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// servedAfter returns the time until a part of all calls was served, counted from the moment
// at which the server can serve. ok is false if that part was not served in time.
func (r result) servedAfter(part float64) (after time.Duration, ok bool) {
	served, n := r.served(), int(part*float64(r.clients*callsPerClient))
	if n == 0 || len(served) < n {
		return 0, false
	}
	return slices.Max(served[:n]) - r.scenario.downtime, true
}
