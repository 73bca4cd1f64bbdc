package adaptive

import "github.com/heed-go/heed/internal/ticks"

// A throughput measures the rate at which units are sent. Units are counted in steps of
// half a second; the latest step has a weight of 0.8, all earlier steps together 0.2.
type throughput struct {
	stepStart int64 // start of the current step, or of the first step since which nothing was sent
	count     int64
	smoothed  float64 // units per second; 0 before the end of the first step
	started   bool
}

const smoothing = .8

func (r *throughput) add(n, now int64) {
	if !r.started {
		r.stepStart, r.started = now, true
	}
	r.smoothed, r.stepStart, r.count = r.stateAt(now)
	r.count = ticks.Add(r.count, n)
}

// subtract removes n units that were not sent.
func (r *throughput) subtract(n int64) { r.count = max(r.count-n, 0) }

// stateAt returns the state at now without changing r.
func (r *throughput) stateAt(now int64) (smoothed float64, stepStart, count int64) {
	steps := ticks.Sub(now, r.stepStart) / halfSecond
	if steps < 1 {
		return r.smoothed, r.stepStart, r.count
	}
	rate := float64(r.count) / (float64(steps) * float64(halfSecond) / 1e9)
	if r.smoothed == 0 {
		return rate, r.stepStart + steps*halfSecond, 0
	}
	return rate*smoothing + r.smoothed*(1-smoothing), r.stepStart + steps*halfSecond, 0
}

// rate returns the rate in units per second. Before the end of the first step it is the
// number of units sent so far divided by the length of a step.
func (r *throughput) rate(now int64) float64 {
	smoothed, _, count := r.stateAt(now)
	if smoothed == 0 {
		return float64(count) / (float64(halfSecond) / 1e9)
	}
	return smoothed
}
