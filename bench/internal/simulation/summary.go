package simulation

import "slices"

// A Summary describes the figures of several runs.
type Summary struct{ Mean, Median, Max float64 }

// Summarize returns the Summary of the value of each run. That of no runs is zero.
func Summarize[R any](runs []R, value func(R) float64) (s Summary) {
	if len(runs) == 0 {
		return Summary{}
	}
	values := make([]float64, 0, len(runs))
	for _, r := range runs {
		values = append(values, value(r))
		s.Mean += value(r) / float64(len(runs))
	}
	slices.Sort(values)
	s.Median, s.Max = values[(len(values)-1)/2], values[len(values)-1]
	return s
}
