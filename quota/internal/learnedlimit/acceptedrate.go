package learnedlimit

import "time"

// An AcceptedRate counts the requests that were accepted in each second of the last minute.
type AcceptedRate struct {
	second int64      // Unix time of the newest count
	counts [61]uint32 // a ring: the count of Unix second s has index s % 61
}

// Add counts n requests that were accepted now. Zero only drops the counts that are too old by now.
func (a *AcceptedRate) Add(n int64, now time.Time) {
	second := now.Unix()
	if second-a.second >= int64(len(a.counts)) {
		*a = AcceptedRate{second: second}
	}
	for a.second < second {
		a.second++
		a.counts[a.second%int64(len(a.counts))] = 0
	}
	a.counts[a.second%int64(len(a.counts))] += uint32(min(n, 1<<30)) //nolint:gosec // bounded
}

// AddEvenly counts n requests that were accepted evenly over the time took, which ends now.
func (a *AcceptedRate) AddEvenly(n int64, took time.Duration, now time.Time) {
	seconds := min(int64(took/time.Second)+1, int64(len(a.counts))-1)
	if whole := int64(took/time.Second) + 1; whole > seconds {
		n = n * seconds / whole
	}
	for i := seconds - 1; i >= 0; i-- {
		a.Add(n/seconds, now.Add(-time.Duration(i)*time.Second))
	}
	a.Add(n%seconds, now)
}

// Highest returns the highest rate in five consecutive seconds, in requests per second.
func (a *AcceptedRate) Highest(now time.Time) float64 {
	a.Add(0, now)
	highest := uint32(0)
	for end := range a.counts {
		sum := uint32(0)
		for i := range 5 {
			second := a.second - int64(end+i)
			if end+i < len(a.counts) && second >= 0 {
				sum += a.counts[second%int64(len(a.counts))]
			}
		}
		highest = max(highest, sum)
	}
	return float64(highest) / 5
}
