package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the first rate of a loop is after a stop that ended with an accepted probe: what was
// accepted, over the time until the stated end of a short hold, or else until now.
func TestRateLoop_beginsAtWhatWasAccepted(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		accepted      int64
		hold          time.Duration // stated
		stopped       float64       // begin of the last stop; the first began after 1 s
		now           float64
		floor         float64
		rate          float64
		knowsTheLimit bool
	}{
		"stated, short":                {100, 3 * time.Second, 1, 5, 0, .99 * 100 / 4, true},
		"stated, short, above floor":   {100, 3 * time.Second, 1, 5, 20, .99 * 100 / 4, true},
		"stated, short, below floor":   {100, 3 * time.Second, 1, 5, 30, 30, true},
		"stated, 10 s":                 {110, 10 * time.Second, 1, 12, 0, .99 * 110 / 11, true},
		"stated, long":                 {100, 11 * time.Second, 1, 20, 0, 100. / 20, false},
		"stated, a probe was rejected": {100, 3 * time.Second, 5, 11, 0, 100. / 8, false},
		"not stated":                   {100, 0, 1, 5, 0, 100. / 5, false},
		"few accepted":                 {7, 3 * time.Second, 1, 7, 0, 1, false},
		"just enough accepted":         {8, 3 * time.Second, 1, 7, 0, .99 * 8 / 4, true},
		"almost none, long ago":        {1, 0, 1, 1000, 0, 1. / 60, false},
	} {
		var l rateLoop
		first := acceptedSpan{since: at(0), until: at(1), n: tt.accepted}
		l.beginAfterStop(first, tt.hold, at(tt.stopped), at(tt.now), at(tt.now), tt.floor, 1)
		require.InEpsilon(t, tt.rate, l.rate, 1e-9, name)
		require.Equal(t, tt.knowsTheLimit, l.goal == l.rate, name)
	}
}
