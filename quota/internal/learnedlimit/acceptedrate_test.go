package learnedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The highest rate is that of five seconds of the last minute.
func TestAcceptedRate_highest(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a AcceptedRate
	for i := range 100 {
		n := int64(10)
		if 50 <= i && i < 55 {
			n = 40
		}
		a.Add(n, now.Add(time.Duration(i)*time.Second))
	}
	last := now.Add(99 * time.Second)
	require.InDelta(t, 40, a.Highest(last), .01)
	require.InDelta(t, 10, a.Highest(last.Add(20*time.Second)), .01, "it was more than a minute ago")
	require.Zero(t, a.Highest(last.Add(time.Hour)))

	var b AcceptedRate
	b.AddEvenly(200, 10*time.Second, now)
	require.InDelta(t, 18, b.Highest(now), 2)
	b = AcceptedRate{}
	b.AddEvenly(20, 0, now)
	require.InDelta(t, 4, b.Highest(now), .01, "20 in the only second of five")
}

// Requests that are spread over a time are counted evenly, and those of more than a minute ago are left out.
func TestAcceptedRate_spreadsWhatWasAcceptedBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		n       int64
		span    time.Duration
		highest float64
		all     int
	}{
		"in a moment":        {100, 0, 20, 100},
		"in 10 s":            {100, 9500 * time.Millisecond, 10, 100},
		"in 10 s, and a few": {103, 9500 * time.Millisecond, 10.6, 103},
		"in a minute":        {600, 59 * time.Second, 10, 600},
		"in 100 s":           {1000, 99 * time.Second, 10, 600},
		"nothing":            {0, time.Minute, 0, 0},
	} {
		var a AcceptedRate
		a.AddEvenly(tt.n, tt.span, now)
		all := 0
		for _, n := range a.counts {
			all += int(n)
		}
		require.Equal(t, tt.all, all, name)
		require.InDelta(t, tt.highest, a.Highest(now), 1e-9, name)
	}
}

// A count is in the highest rate for 61 seconds.
func TestAcceptedRate_secondsThatCount(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for after, want := range map[int]float64{0: 2, 59: 2, 60: 2, 61: 0, 1000: 0} {
		var a AcceptedRate
		a.Add(10, now)
		require.InDelta(t, want, a.Highest(now.Add(time.Duration(after)*time.Second)), 1e-9, "%d s", after)
	}
}

// Seconds that count for the highest rate are those of the last minute, and none before 1970.
func TestAcceptedRate_countsEachSecondOnce(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a AcceptedRate
	for _, ago := range []time.Duration{60, 59, 58, 57, 1, 0} {
		a.Add(10, now.Add(-ago*time.Second))
	}
	require.InDelta(t, 40./5, a.Highest(now), 1e-9, "the latest two and the oldest four are apart")
	require.InDelta(t, 30./5, a.Highest(now.Add(time.Second)), 1e-9)
	require.InDelta(t, 20./5, a.Highest(now.Add(3*time.Second)), 1e-9)
	require.Zero(t, a.Highest(now.Add(61*time.Second)))
	a = AcceptedRate{}
	for s := range int64(3) {
		a.Add(10, time.Unix(s, 0))
	}
	require.InDelta(t, 30./5, a.Highest(time.Unix(2, 0)), 1e-9)
	a.Add(10, time.Unix(0, 0))
	require.EqualValues(t, 2, a.second, "the clock was set back")
}
