package main

import (
	"time"

	"github.com/benbjohnson/clock"
)

// start is the beginning of a minute, so that windows aligned to the clock begin at 0:00,
// 1:00 and 2:00.
var start = time.Date(2026, time.November, 21, 11, 0, 0, 0, time.UTC)

// newClock returns a clock that does not advance; each claim states its own time.
func newClock() *clock.Mock {
	clk := clock.NewMock()
	clk.Set(start)
	return clk
}

// duration is the length of every workload.
const duration = 3 * time.Minute

// A workload is a sequence of arrivals of requests.
type workload struct {
	name        string
	description string
	arrivals    func() []time.Duration // since start
}

var workloads = []workload{
	{"steady", "3 in 2 seconds, evenly", steady},
	{"sale", "one in 3 seconds; 300 in the 10 seconds from 0:30 on", sale},
	{"edge", "60 in the second before each full minute, 60 in the second after it", edge},
}

func steady() []time.Duration { return evenly(270, 0, duration) }

func sale() []time.Duration {
	all := evenly(10, 0, 30*time.Second)
	all = append(all, evenly(300, 30*time.Second, 40*time.Second)...)
	return append(all, evenly(46, 42*time.Second, duration)...)
}

func edge() (all []time.Duration) {
	for m := time.Minute; m < duration; m += time.Minute {
		all = append(all, evenly(120, m-time.Second, m+time.Second)...)
	}
	return all
}

// evenly returns n instants at equal intervals, the first at from and all before to.
func evenly(n int, from, to time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = from + (to-from)*time.Duration(i)/time.Duration(n)
	}
	return all
}
