package throttle

// A sendRate measures what is sent. Units are counted in steps of half a second; the
// latest step counts for 0.8 and all before it for the rest.
type sendRate struct {
	began  int64 // the step that is counted, or the first that nothing was sent in since
	count  int64
	smooth float64 // units a second; 0 before the first step is over
	any    bool
}

const smoothing = .8

func (r *sendRate) add(n, now int64) {
	if !r.any {
		r.began, r.any = now, true
	}
	r.smooth, r.began, r.count = r.at(now)
	r.count = addSat(r.count, n)
}

// take takes back what was not sent after all.
func (r *sendRate) take(n int64) { r.count = max(r.count-n, 0) }

// at returns what add would go on from.
func (r *sendRate) at(now int64) (smooth float64, began, count int64) {
	steps := subSat(now, r.began) / halfSecond
	if steps < 1 {
		return r.smooth, r.began, r.count
	}
	rate := float64(r.count) / (float64(steps) * float64(halfSecond) / 1e9)
	if r.smooth == 0 {
		return rate, r.began + steps*halfSecond, 0
	}
	return rate*smoothing + r.smooth*(1-smoothing), r.began + steps*halfSecond, 0
}

// latest returns the rate. Until the first step is over it is what was sent so far, as
// if that were all of the step.
func (r *sendRate) latest(now int64) float64 {
	smooth, _, count := r.at(now)
	if smooth == 0 {
		return float64(count) / (float64(halfSecond) / 1e9)
	}
	return smooth
}
