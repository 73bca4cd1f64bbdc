package statedlimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// The reset of a window of a usual length is computed from its start, if the stated one may be that,
// rounded up, or down where the server was seen to do that.
func TestWindowStart_refinesResets(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		state      windowStart
		stated     time.Duration // from the start
		resolution time.Duration
		want       time.Duration // from the start
	}{
		"exact":                {windowStart{at: start}, 5 * time.Second, time.Second, 5 * time.Second},
		"rounded up":           {windowStart{at: start}, 6*time.Second - 1, time.Second, 5 * time.Second},
		"another second":       {windowStart{at: start}, 6 * time.Second, time.Second, 6 * time.Second},
		"earlier":              {windowStart{at: start}, 5*time.Second - 1, time.Second, 5*time.Second - 1},
		"no resolution":        {windowStart{at: start}, 5 * time.Second, 0, 5 * time.Second},
		"in minutes":           {windowStart{at: start}, time.Hour + 59*time.Second, time.Minute, time.Hour},
		"rounded down":         {windowStart{at: start, floor: true}, 4*time.Second + 1, time.Second, 5 * time.Second},
		"rounded down, exact":  {windowStart{at: start, floor: true}, 5 * time.Second, time.Second, 5 * time.Second},
		"rounded down by more": {windowStart{at: start, floor: true}, 4 * time.Second, time.Second, 4 * time.Second},
		"not rounded down":     {windowStart{at: start, floor: true}, 5*time.Second + 1, time.Second, 5*time.Second + 1},
		"no start":             {windowStart{}, 6*time.Second - 1, time.Second, 6*time.Second - 1},
	} {
		s := tt.state
		require.Equal(t, tt.want, s.refine(start.Add(tt.stated), tt.resolution).Sub(start), name)
	}
}

// A window starts with the response that states one used unit. A rejection after a computed reset shows
// that the server rounds down.
func TestWindowStart_observesWindows(t *testing.T) {
	before, now := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, tt := range map[string]struct {
		state          windowStart
		limit, left    int64
		resolution     time.Duration
		over, rejected bool
		want           windowStart
	}{
		"the first":                        {windowStart{at: before}, 3, 2, 0, false, false, windowStart{at: now}},
		"the first, when the last is over": {windowStart{at: before}, 3, 2, 0, true, true, windowStart{at: now}},
		"of few units":                     {windowStart{at: before}, 2, 1, 0, false, false, windowStart{at: before}},
		"the second":                       {windowStart{at: before}, 3, 1, 0, false, false, windowStart{at: before}},
		"unused":                           {windowStart{at: before}, 3, 3, 0, false, false, windowStart{at: before}},
		"over":                             {windowStart{at: before}, 3, 1, time.Second, true, false, windowStart{}},
		"rejected":                         {windowStart{at: before}, 3, 0, time.Second, true, true, windowStart{floor: true}},
		"rejected again":                   {windowStart{at: before, floor: true}, 3, 0, time.Second, true, true, windowStart{floor: true}},
		"accepted again":                   {windowStart{at: before, floor: true}, 3, 0, time.Second, true, false, windowStart{floor: true}},
		"rejected, without a start":        {windowStart{}, 3, 0, time.Second, true, true, windowStart{}},
		"rejected in the window":           {windowStart{at: before}, 3, 0, time.Second, false, true, windowStart{at: before}},
	} {
		s := tt.state
		s.observe(throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.left, Resolution: tt.resolution}, now, tt.over, tt.rejected)
		require.Equal(t, tt.want, s, name)
	}
}

func TestUsualLengths(t *testing.T) {
	var all []string
	for _, u := range UsualLengths {
		all = append(all, u.String())
	}
	require.Equal(t, strings.Fields("24h0m0s 1h0m0s 30m0s 15m0s 10m0s 5m0s 2m0s 1m0s 30s 20s 15s 10s 5s 2s 1s"), all)
}

// That a server rounds down is learned from the rejection of the first claim after the reset only.
func TestEstimate_learnsThatResetsAreRoundedDown(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		probe bool
		n     uint64
		left  int64
		want  bool
	}{
		"probe":            {true, 11, 0, true},
		"not rejected":     {true, 11, 9, false},
		"before the probe": {true, 10, 0, false},
		"no probe":         {false, 11, 0, false},
	} {
		e := Estimate{Limit: 100, At: start, Reset: start.Add(time.Second), LastSent: 10, Probe: tt.probe, start: windowStart{at: start}}
		e.Update(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: time.Second, Resolution: time.Second}, tt.n, start.Add(time.Second), &inflight.Claims{Sent: 12})
		require.Equal(t, tt.want, e.start.floor, name)
	}
}
