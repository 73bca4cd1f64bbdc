package worlds

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Comparison is what the calls of a client lose or gain beside a peer in the same world.
//
// A call is harmed if the peer succeeds and the call fails, or succeeds more than max(1 s, half
// of the peer's time) later. Times are those of the call, from its start to its end. It is
// helped if it succeeds without being late and the peer fails.
//
// With a limit calls must wait, and a peer may be faster because it fails others or
// serves them in another order. There a call is late only if it is also late beside the call
// of the oracle with the same rank, if the successful calls of each are sorted by their time.
//
// The points are the share of
// the harmed calls minus the share of the helped ones, in percent: what the failures of the
// client, with late calls, exceed those of the peer. All differences are paired by the
// number of the call.
//
// Points that do not exceed three standard errors of the paired difference are noise, and
// Harm is then 0. The standard error assumes that calls are independent; so few calls that
// are harmed together, up to about ten, do not count as harm.
type Comparison struct {
	Harmed int     // calls
	Late   int     // harmed calls that succeed
	Helped int     // calls
	Points float64 // harmed minus helped calls, in percent of all
	Error  float64 // the standard error of Points
	Harm   float64 // Points if they exceed three standard errors, otherwise 0

	// Short is the highest Harm of the calls that start within any max(60 s, 20 median
	// latencies), and Long that within ten times as long, less three standard errors.
	Short, Long float64

	Causes map[string]int // harmed calls, by Waits.Cause
}

// Compare compares a client with a peer in the same world. oracle is nil if the world has no
// limit.
func Compare(ours, peer, oracle *Run) Comparison {
	diff := make([]int8, len(ours.Results))
	c := Comparison{Causes: map[string]int{}}
	unavoidable := make([]bool, len(ours.Results))
	if oracle != nil {
		unavoidable = unavoidablyLate(ours, oracle)
	}
	for i, r := range ours.Results {
		switch p := peer.Results[i]; {
		case p.OK() && !r.OK():
			diff[i] = 1
		case p.OK() && late(r, p) && !unavoidable[i]:
			diff[i] = 1
			c.Late++
		case r.OK() && !p.OK():
			diff[i] = -1
		}
	}
	all := sum{}
	for i, d := range diff {
		if all.add(d, 1); d > 0 && ours.Waits != nil {
			c.Causes[ours.Waits[i].Cause(ours.Results[i])]++
		}
	}
	c.Harmed, c.Helped = all.harmed, all.helped
	c.Points, c.Error = all.points()
	c.Harm = all.harm()
	w := ours.World
	window := max(time.Minute, 20*w.Median())
	order := byStart(ours.Results)
	c.Short = worst(ours.Results, order, diff, window, sum.harm)
	c.Long = worst(ours.Results, order, diff, 10*window, sum.excess)
	return c
}

// late reports whether r ends more than max(1 s, half of the time of p) later than p.
func late(r, p Result) bool {
	return r.Duration-p.Duration > max(time.Second, p.Duration/2)
}

// unavoidablyLate reports for each call whether it is not late beside the call of the oracle
// with the same rank.
func unavoidablyLate(ours, oracle *Run) []bool {
	unavoidable := make([]bool, len(ours.Results))
	a, b := byDuration(ours.Results), byDuration(oracle.Results)
	for rank, i := range a {
		unavoidable[i] = rank >= len(b) || !late(ours.Results[i], oracle.Results[b[rank]])
	}
	return unavoidable
}

// byDuration returns the numbers of the successful calls, the fastest first.
func byDuration(results []Result) (order []int) {
	for i, r := range results {
		if r.OK() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(results[a].Duration, results[b].Duration) })
	return order
}

// A sum counts calls.
type sum struct{ calls, harmed, helped int }

// add adds n times the difference of a call.
func (s *sum) add(d int8, n int) {
	s.calls += n
	switch d {
	case 1:
		s.harmed += n
	case -1:
		s.helped += n
	}
}

// points returns the mean difference and its standard error, in percent.
func (s sum) points() (mean, standardError float64) {
	if s.calls == 0 {
		return 0, 0
	}
	n := float64(s.calls)
	m := float64(s.harmed-s.helped) / n
	variance := float64(s.harmed+s.helped)/n - m*m
	return 100 * m, 100 * math.Sqrt(max(variance, 0)/n+1/(n*n)) // a call more or less, so that no error is 0
}

// harm returns the points if they exceed three standard errors, otherwise 0.
func (s sum) harm() float64 {
	if points, e := s.points(); points > 3*e {
		return points
	}
	return 0
}

// excess returns by how much the points exceed three standard errors, or 0.
func (s sum) excess() float64 {
	points, e := s.points()
	return max(points-3*e, 0)
}

// byStart returns the numbers of the calls in the order of their starts.
func byStart(results []Result) []int {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(results[a].Start, results[b].Start) })
	return order
}

// worst returns the highest value of any interval of the calls, in steps of a tenth of its length.
func worst(results []Result, order []int, diff []int8, length time.Duration, value func(sum) float64) (highest float64) {
	if len(order) == 0 {
		return 0
	}
	s, first, next := sum{}, 0, 0
	for end := results[order[0]].Start + length; ; end += length / 10 {
		for ; next < len(order) && results[order[next]].Start < end; next++ {
			s.add(diff[order[next]], 1)
		}
		for ; first < next && results[order[first]].Start < end-length; first++ {
			s.add(diff[order[first]], -1)
		}
		highest = max(highest, value(s))
		if next == len(order) {
			return highest
		}
		if first == next { // skip a time without calls
			end = max(end, results[order[next]].Start)
		}
	}
}

// A Summary is the figures of a run.
type Summary struct {
	Calls    int
	Failed   int
	Mean     time.Duration // of the successful calls
	Median   time.Duration
	P99      time.Duration
	Sent     int
	Rejected int // by the limit
	Reasons  map[string]int
}

// Summarize returns the figures of r.
func (r *Run) Summarize() Summary {
	s := Summary{Calls: len(r.Results), Sent: len(r.Attempts), Reasons: map[string]int{}}
	var times []time.Duration
	var sum float64
	for _, result := range r.Results {
		if !result.OK() {
			s.Failed++
			s.Reasons[result.Reason.String()]++
			continue
		}
		times = append(times, result.Duration)
		sum += float64(result.Duration)
	}
	if n := len(times); n > 0 {
		slices.Sort(times)
		s.Mean, s.Median, s.P99 = time.Duration(sum/float64(n)), times[n/2], times[n*99/100]
	}
	for _, a := range r.Attempts {
		if a.Cause == ByLimit {
			s.Rejected++
		}
	}
	return s
}

// FailedShare returns the failed calls in percent.
func (s Summary) FailedShare() float64 { return 100 * float64(s.Failed) / float64(max(s.Calls, 1)) }

// Better reports whether a peer with the figures s is better than one with those of other: fewer
// calls fail, or as many and the others take less time.
func (s Summary) Better(other Summary) bool {
	return cmp.Or(cmp.Compare(s.Failed, other.Failed), cmp.Compare(s.Mean, other.Mean)) < 0
}

// Slower returns the mean time of the calls that succeed in both runs, by that in the run
// of the peer. It is 1 if the means differ by less than 5 ms, or if there are no such
// calls.
func Slower(ours, peer *Run) float64 {
	var a, b time.Duration
	n := time.Duration(0)
	for i, r := range ours.Results {
		if p := peer.Results[i]; r.OK() && p.OK() {
			a, b, n = a+r.Duration, b+p.Duration, n+1
		}
	}
	if n == 0 || (a-b).Abs() < n*5*time.Millisecond {
		return 1
	}
	return float64(a) / float64(max(b, 1))
}
