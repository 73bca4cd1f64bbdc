package main

import (
	"fmt"
	"regexp"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

// A row is one kind of server.
type row struct {
	name string
	simulation.Scenario
	ideal time.Duration // zero: not known
	goal  goal
}

// A goal bounds what heed does in a row. In rows without an ideal time no run may fail more
// calls than that of the plain client with the same seed.
type goal struct {
	failed   float64       // percentage of calls in the mean of the runs; negative means any
	times    float64       // time as a multiple of the ideal one; zero means any
	overload time.Duration // maximum of the time at which twice the capacity was last exceeded; zero means any
}

// A result is one client in one row with one seed.
type result struct {
	Client     string  `json:"client"`
	Row        string  `json:"row"`
	Seed       int     `json:"seed"`
	Calls      int     `json:"calls"`
	Failed     int     `json:"failed"`
	Sent       int     `json:"sent"`
	Rejected   int     `json:"rejected"`
	Early      int     `json:"early"`
	Overloaded float64 `json:"overload_s,omitempty"`
	Elapsed    float64 `json:"elapsed_s"`
	Ideal      float64 `json:"ideal_s,omitempty"`
	row        row
}

const (
	maxInFlight = 10 // of the servers that bound the requests in flight
	workers     = 30 // of their client
	jobCalls    = 2000
	jobLatency  = 100 * time.Millisecond
)

// rows returns the rows whose names match.
func rows(name *regexp.Regexp) (some []row) {
	for _, r := range append(overloads(), bounds()...) {
		if name.MatchString(r.name) {
			some = append(some, r)
		}
	}
	return some
}

// overloads are servers that fail beyond their capacity and become slower.
func overloads() (all []row) {
	faults := map[string]simulation.Fault{"503": {Status: 503}, "429": {Status: 429}, "drop": {Drop: true}}
	for _, capacity := range []int{3, 8, 32} {
		for _, kind := range []string{"503", "429", "drop"} {
			for _, percent := range []int{30, 60} {
				for _, noise := range []float64{0, .5, 1} {
					f, g := faults[kind], goal{failed: -1}
					f.Share = float64(percent) / 100
					if capacity > 3 {
						g.overload = 5 * time.Second
					}
					if capacity == 8 {
						g.failed = map[int]float64{30: .5, 60: 2}[percent]
					}
					all = append(all, row{
						name:     fmt.Sprintf("capacity %d, %s %d %%, noise %v", capacity, kind, percent, noise),
						Scenario: simulation.Overload(capacity, f, noise), goal: g,
					})
				}
			}
		}
	}
	return all
}

// bounds are servers that reject requests beyond a number in flight.
func bounds() (all []row) {
	for _, status := range []int{429, 503} {
		for _, retryAfter := range [][]int{nil, {1}} {
			for _, noise := range []float64{0, .5, 1} {
				rejected := simulation.Fault{Above: maxInFlight, Status: status, RetryAfter: retryAfter, Rejected: true, Delay: simulation.Latency{Mean: time.Millisecond}}
				all = append(all, row{
					name: fmt.Sprintf("%d above %d, Retry-After %v, noise %v", status, maxInFlight, retryAfter, noise),
					Scenario: simulation.Scenario{
						Loads: []simulation.Load{{Calls: jobCalls, Workers: workers}},
						Site:  simulation.Site{Latency: simulation.Latency{Mean: jobLatency, Noise: noise}, Faults: []simulation.Fault{rejected}},
					},
					ideal: jobCalls * (jobLatency + simulation.MaxLate/2) / maxInFlight,
					goal:  goal{times: 1.3},
				})
			}
		}
	}
	return all
}

// run makes the calls of r with one client. It must be called in virtual time.
func (r row) run(client string, seed int) result {
	x := r.Run(clients.Constructor(client), simulation.Seed(r.name, seed), nil)
	return result{Client: client, Row: r.name, Seed: seed, Calls: x.Calls, Failed: x.Failed, Sent: x.Sent, Rejected: x.Rejected,
		Early: x.Early, Overloaded: x.Overloaded.Seconds(), Elapsed: x.Elapsed.Seconds(), Ideal: r.ideal.Seconds(), row: r}
}

func (r result) failed() float64     { return 100 * float64(r.Failed) / float64(r.Calls) }
func (r result) times() float64      { return r.Elapsed / r.Ideal }
func (r result) overloaded() float64 { return r.Overloaded }

// byClient returns the runs of one client, by seed.
func byClient(runs []result, client string) (of []result) {
	for _, r := range runs {
		if r.Client == client {
			of = append(of, r)
		}
	}
	return of
}

// worseThanPlain returns the number of runs in which a client fails more calls than the plain
// client.
func worseThanPlain(runs []result, client string) (n int) {
	theirs := byClient(runs, "plain")
	for i, r := range byClient(runs, client) {
		if i < len(theirs) && r.Failed > theirs[i].Failed {
			n++
		}
	}
	return n
}

// misses returns the goals that heed misses in the runs of a row.
func misses(runs []result) (missed []string) {
	ours := byClient(runs, "heed")
	if len(ours) == 0 {
		return nil
	}
	miss := func(ok bool, format string, args ...any) {
		if !ok {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	g, early := runs[0].row.goal, 0
	for _, r := range ours {
		early += r.Early
	}
	if g.failed >= 0 {
		failed := simulation.Summarize(ours, result.failed).Mean
		miss(failed <= g.failed, "%.2f %% fail of at most %v", failed, g.failed)
	}
	if g.times > 0 {
		times := simulation.Summarize(ours, result.times).Max
		miss(times <= g.times, "%.2f x of at most %v", times, g.times)
	} else {
		n := worseThanPlain(runs, "heed")
		miss(n == 0, "worse than plain in %d of %d", n, len(ours))
	}
	if g.overload > 0 {
		end := simulation.Summarize(ours, result.overloaded).Max
		miss(end <= g.overload.Seconds(), "overload until %.1f s", end)
	}
	miss(early == 0, "%d sent early", early)
	return missed
}

// A total is what heed does in all rows.
type total struct{ rows, missed, runs, worse int }

func (t *total) add(runs []result) {
	ours := byClient(runs, "heed")
	if len(ours) == 0 {
		return
	}
	t.rows++
	t.missed += min(len(misses(runs)), 1)
	if runs[0].Ideal == 0 {
		t.runs += len(ours)
		t.worse += worseThanPlain(runs, "heed")
	}
}

// String implements fmt.Stringer.
func (t total) String() string {
	return fmt.Sprintf("heed misses a goal in %d of %d rows, and is worse than plain in %d of %d runs of overloaded servers", t.missed, t.rows, t.worse, t.runs)
}
