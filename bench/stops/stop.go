package main

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/throttle"
)

// A row is a client whose calls a server stops.
type row struct {
	client  string
	status  int
	lengths []time.Duration // of the stops
	workers int             // zero: the calls are made at the same moment, some time after good ones
	calls   int
	good    int     // requests that are accepted before the first stop, or before the calls
	own     float64 // requests per second of an own limit with a burst of 1; zero: none
}

// A result is one row with one seed. Early are requests that were sent again before the time that their
// own rejection stated, during are those that arrived in a stop although the client knew it.
type result struct {
	Client  string  `json:"client"`
	Row     string  `json:"row"`
	Seed    int     `json:"seed"`
	Calls   int     `json:"calls"`
	Failed  int     `json:"failed"`
	Sent    int     `json:"sent"`
	Early   int     `json:"early"`
	During  int     `json:"during"`
	Elapsed float64 `json:"elapsed_s"`
	Ideal   float64 `json:"ideal_s"`
	row     row
}

const (
	latency = 20 * time.Millisecond

	// roundTrip is the mean time of a call: its latency, and how late it is served, answered
	// and made.
	roundTrip = latency + time.Millisecond/2 + simulation.MaxLate

	ownRate      = 100 // of the own limit of a pool of workers
	ownRateCrowd = 20  // of the own limit of one goroutine per call

	// confirmations is the number of rejections after which a stop of all requests is known.
	confirmations = 4

	// crowdStop is the number of requests of a crowd that are accepted before the stop.
	crowdStop = 10
)

// rows returns all rows, in the order in which they are printed.
func rows() (all []row) {
	add := func(r row) {
		all = append(all, r)
		if r.own == 0 { // others do not have limits
			r.client = "retryablehttp"
			all = append(all, r)
		}
	}
	for _, calls := range []int{4000, 20_000} {
		for _, own := range []float64{0, ownRate} {
			for _, status := range []int{503, 429} {
				for _, seconds := range []time.Duration{2, 5, 30} {
					for _, workers := range []int{10, 20, 50} {
						for _, good := range []int{0, 100, 1000} {
							add(row{"heed", status, []time.Duration{seconds * time.Second}, workers, calls, good, own})
						}
					}
				}
			}
		}
	}
	for _, status := range []int{503, 429} {
		for _, own := range []float64{0, ownRate} {
			add(row{"heed", status, []time.Duration{2 * time.Second, 5 * time.Second, 2 * time.Second}, 20, 4000, 100, own})
		}
		for _, good := range []int{40, 100, 300} {
			add(row{"heed", status, []time.Duration{30 * time.Second}, 0, 600, good, ownRateCrowd})
		}
	}
	return all
}

// matching returns the rows whose name and client match.
func matching(all []row, name, client *regexp.Regexp) (some []row) {
	for _, r := range all {
		if name.MatchString(r.name()) && client.MatchString(r.client) {
			some = append(some, r)
		}
	}
	return some
}

func (r row) name() string {
	callers, limit := fmt.Sprintf("%d workers", r.workers), ""
	if r.workers == 0 {
		callers = "together"
	}
	if r.own > 0 {
		limit = fmt.Sprintf(", own limit of %v/s", r.own)
	}
	return fmt.Sprintf("%d for %v after %d, %d calls, %s%s", r.status, r.lengths, r.good, r.calls, callers, limit)
}

// scenario returns the calls and the stops. A further stop begins after as many requests as
// the calls allow, so that the last calls come after the last stop.
func (r row) scenario() simulation.Scenario {
	s := simulation.Scenario{
		Loads: []simulation.Load{{Calls: r.calls, Workers: r.workers}},
		Site:  simulation.Site{Latency: simulation.Latency{Mean: latency}},
	}
	first := r.good
	if r.workers == 0 {
		s.Loads[0].After = r.crowd()
		s.Loads = append(s.Loads, simulation.Load{Calls: r.good, Workers: 1})
		first += crowdStop
	}
	for i, length := range r.lengths {
		after := first + i*(r.calls-r.good)/len(r.lengths)
		s.Site.Faults = append(s.Site.Faults, simulation.Fault{After: after, To: length, Status: r.status, StateEnd: true})
	}
	return s
}

// crowd returns the time at which a crowd makes its calls: after the good ones.
func (r row) crowd() time.Duration {
	return time.Duration(float64(r.good)/r.own*float64(time.Second)) + 5*time.Second
}

// newClient returns the client of r.
func (r row) newClient(base http.RoundTripper) *http.Client {
	var limit throttle.Limiter
	if r.own > 0 {
		limit = throttle.NewTokenBucket(throttle.PerSecond(int64(r.own)).WithBurst(1))
	}
	c, err := clients.New(r.client, base, limit)
	if err != nil {
		panic(err)
	}
	return c
}

// run makes the calls. It must be called in virtual time.
func (r row) run(newClient func(http.RoundTripper) *http.Client, seed int) result {
	w := watcher{known: r.known()}
	x := r.scenario().Run(newClient, simulation.Seed(r.name(), seed), w.observe)
	return result{Client: r.client, Row: r.name(), Seed: seed, Calls: x.Calls, Failed: x.Failed, Sent: x.Sent, Early: x.Early,
		During: w.during, Elapsed: x.Elapsed.Seconds(), Ideal: r.ideal().Seconds(), row: r}
}

// known returns how long after its beginning a client may be expected to know a stop: after two round
// trips, and the requests that confirm it.
func (r row) known() time.Duration {
	known := 2 * (roundTrip + simulation.MaxLate)
	if r.own > 0 {
		known += time.Duration(confirmations / r.own * float64(time.Second))
	}
	return known
}

// ideal returns the time of a client that sends nothing during the stops.
func (r row) ideal() time.Duration {
	working := time.Duration(r.calls) * roundTrip / time.Duration(max(r.workers, 1))
	if r.own > 0 {
		working = max(working, time.Duration(float64(r.calls)/r.own*float64(time.Second)))
	}
	if r.workers == 0 {
		working += r.crowd()
	}
	for _, length := range r.lengths {
		working += length
	}
	return working
}

// A watcher counts requests during stops.
type watcher struct {
	known  time.Duration
	stop   time.Time // the first request of the latest stop; zero: none
	during int
}

// observe is called with each request, in their order. Those of a stop fail.
func (w *watcher) observe(r simulation.Request, resp simulation.Response) {
	switch {
	case resp.Status == 0:
		w.stop = time.Time{}
	case w.stop.IsZero():
		w.stop = r.At
	case r.At.Sub(w.stop) > w.known:
		w.during++
	}
}

// times returns the elapsed time as a multiple of the ideal one.
func (r result) times() float64 { return r.Elapsed / r.Ideal }

// tests returns how many requests a client may send during the stops: one per second.
func (r result) tests() (n int) {
	for _, length := range r.row.lengths {
		n += int(math.Ceil(length.Seconds())) + 1
	}
	return n
}

// misses returns the goals that r misses.
func (r result) misses() (missed []string) {
	miss := func(ok bool, format string, args ...any) {
		if !ok {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	miss(r.times() <= 1.1, "longer than 1.1 x")
	miss(r.Early == 0, "sent early")
	miss(r.During <= r.tests(), "more than %d during the stop", r.tests())
	miss(r.Failed == 0, "failed")
	return missed
}
