package worlds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// results returns a run of calls that start every second and take so many milliseconds.
// Negative numbers are failed calls.
func results(times ...int) *Run {
	r := &Run{World: &World{Load: Load{Duration: time.Minute}}}
	for i, ms := range times {
		result := Result{Start: time.Duration(i) * time.Second, Duration: time.Duration(max(ms, -ms)) * time.Millisecond}
		if ms < 0 {
			result.Reason = BadStatus
		}
		r.Results = append(r.Results, result)
	}
	return r
}

func repeat(n, ms int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = ms
	}
	return list
}

func TestCompare_countsHarmedCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		ours, peer           int // ms
		harmed, late, helped int
	}{
		"same":           {100, 100, 0, 0, 0},
		"fails":          {-100, 100, 1, 0, 0},
		"both fail":      {-100, -100, 0, 0, 0},
		"only peer":      {100, -100, 0, 0, 1},
		"a second later": {1100, 100, 0, 0, 0},
		"later":          {1101, 100, 1, 1, 0},
		"half later":     {15000, 10000, 0, 0, 0},
		"more than half": {15001, 10000, 1, 1, 0},
		"earlier":        {100, 10000, 0, 0, 0},
	} {
		c := Compare(results(tt.ours), results(tt.peer), nil)
		require.Equal(t, []int{tt.harmed, tt.late, tt.helped}, []int{c.Harmed, c.Late, c.Helped}, name)
	}
}

func TestCompare_excusesWaitsOfTheOracle(t *testing.T) {
	ours, peer := results(100, 5000, 9000), results(100, 100, 100)
	require.Equal(t, 2, Compare(ours, peer, nil).Late)
	require.Equal(t, 2, Compare(ours, peer, results(1, 1, 1)).Late)
	require.Equal(t, 1, Compare(ours, peer, results(4800, 100, 5000)).Late, "another order")
	require.Equal(t, 0, Compare(ours, peer, results(4800, 100, -100)).Late, "the oracle fails one")
}

func TestCompare_ignoresNoise(t *testing.T) {
	some := func(failed int) *Run { return results(append(repeat(failed, -1), repeat(1000-failed, 1)...)...) }
	c := Compare(some(5), some(0), nil)
	require.InDelta(t, .5, c.Points, 1e-9)
	require.Zero(t, c.Harm)
	c = Compare(some(20), some(0), nil)
	require.InDelta(t, 2, c.Harm, 1e-9)
	require.InDelta(t, .44, c.Error, .1)
	require.Greater(t, c.Short, 30.)
	require.Less(t, c.Long, 3.)
	require.Zero(t, Compare(some(0), some(20), nil).Harm)
	require.Negative(t, Compare(some(0), some(20), nil).Points)
}

func TestSlower_comparesCallsThatSucceedInBoth(t *testing.T) {
	require.InDelta(t, 3, Slower(results(300, -9000, 300), results(100, 100, 100)), 1e-9)
	require.InDelta(t, 1, Slower(results(6), results(2)), 1e-9, "4 ms are ignored")
	require.InDelta(t, 1, Slower(results(-1), results(2)), 1e-9)
}

func TestSummarize_describesARun(t *testing.T) {
	r := results(100, 200, -300, 600)
	r.Results[2].Reason = Unsent
	r.Attempts = []Attempt{{Cause: ByLimit}, {}}
	s := r.Summarize()
	require.Equal(t, Summary{
		Calls: 4, Failed: 1, Mean: 300 * time.Millisecond, Median: 200 * time.Millisecond, P99: 600 * time.Millisecond,
		Sent: 2, Rejected: 1, Reasons: map[string]int{"unsent": 1},
	}, s)
	require.InDelta(t, 25, s.FailedShare(), 1e-9)
	require.True(t, results(1, 2).Summarize().Better(results(1, -2).Summarize()))
	require.True(t, results(1, 2).Summarize().Better(results(2, 2).Summarize()))
}
