package throttle

import "github.com/heed-go/heed/internal/ticks"

// A throughput measures what is sent. Units are counted in steps of half a second; the
// latest step counts for 0.8 and all before it for the rest.
type throughput struct {
	stepStart int64 // the step that is counted, or the first that nothing was sent in since
	count     int64
	smoothed  float64 // units a second; 0 before the first step is over
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

// subtract takes back what was not sent after all.
func (r *throughput) subtract(n int64) { r.count = max(r.count-n, 0) }

// stateAt returns what add would go on from.
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

// rate returns the rate. Until the first step is over it is what was sent so far, as
// if that were all of the step.
func (r *throughput) rate(now int64) float64 {
	smoothed, _, count := r.stateAt(now)
	if smoothed == 0 {
		return float64(count) / (float64(halfSecond) / 1e9)
	}
	return smoothed
}
