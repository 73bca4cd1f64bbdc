package quota

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A stated end that is more than an hour away is probed early, each time after three times as long.
// After two rejected probes that moved the end, there are no early probes.
func TestHold_probesLateEndsEarly(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		retryAfter func(now time.Time) time.Duration
		window     time.Duration
		want       []time.Duration // between the rejections
	}{
		"an hour":             {func(time.Time) time.Duration { return time.Hour }, 0, []time.Duration{time.Hour, time.Hour}},
		"a day, in its quota": {func(time.Time) time.Duration { return 24 * time.Hour }, 24 * time.Hour, []time.Duration{24 * time.Hour}},
		"a fixed end in ten days": {func(now time.Time) time.Duration { return start.Add(240 * time.Hour).Sub(now) }, 0,
			[]time.Duration{15 * time.Minute, 45 * time.Minute, 135 * time.Minute, 405 * time.Minute}},
		"two hours, renewed by each rejection": {func(time.Time) time.Duration { return 2 * time.Hour }, 0,
			[]time.Duration{15 * time.Minute, 45 * time.Minute, 2 * time.Hour}},
		"more than a year": {func(time.Time) time.Duration { return 1 << 62 }, 0, []time.Duration{15 * time.Minute, 45 * time.Minute}},
	} {
		var h hold
		now, n := start, uint64(1)
		for i, want := range tt.want {
			require.True(t, h.rejected(n, now, rejection{retryAfter: tt.retryAfter(now), window: tt.window, maxHold: defaultHold, sent: n}), name)
			require.InDelta(t, want, h.until.Sub(now), float64(time.Second), "%s, %d", name, i)
			now, n = h.until, n+1
		}
		// A probe that is rejected with a shorter wait does not shorten the hold.
		end := h.statedEnd
		h.rejected(n, now, rejection{retryAfter: time.Second, maxHold: defaultHold, sent: n})
		require.False(t, h.statedEnd.Before(end), name)
	}
}

// What a hold that the server did not state shows of the length of the next one: the time without
// requests that ended it, or all of it if that was much longer than the latest such time, because
// probes do not extend the ban then. A time in which no request was to be sent does not count.
func TestHold_remembersWhatEndedABan(t *testing.T) {
	begin := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		stated       bool
		before       time.Duration // lastPause
		closed       time.Duration // when it was last closed, from its beginning
		until, sent  time.Duration // when the probe was due and sent
		gap, lasting time.Duration
	}{
		"first probe":                 {false, 0, 0, 5 * s, 5 * s, 5 * s, 5 * s},
		"second probe":                {false, 0, 5 * s, 8 * s, 8 * s, 3 * s, 8 * s},
		"idle since":                  {false, 0, 0, 5 * s, 60 * s, 6 * s, 6 * s},
		"just not idle":               {false, 0, 0, 5 * s, 6 * s, 6 * s, 6 * s},
		"as long as twice before":     {false, 4 * s, 5 * s, 8 * s, 8 * s, 3 * s, 8 * s},
		"longer than twice before":    {false, 4 * s, 6 * s, 9 * s, 9 * s, 9 * s, 9 * s},
		"stated, which shows nothing": {true, 4 * s, 0, 9 * s, 9 * s, 4 * s, 0},
	} {
		h := hold{active: true, estimated: !tt.stated, lastSent: 7, since: begin, rejectedAt: begin.Add(tt.closed), until: begin.Add(tt.until), lastPause: tt.before}
		require.False(t, h.accepted(7, begin), "%s: it was sent before the hold", name)
		require.True(t, h.accepted(8, begin.Add(tt.sent)), name)
		require.Equal(t, tt.gap, h.lastPause, name)
		require.Equal(t, tt.lasting, h.lastTotal, name)
		require.False(t, h.accepted(9, begin.Add(tt.sent)), "%s: it is over", name)
	}
}

// Requests that wait for the end of a hold are not sent in one round trip, although the host was
// known to be without a limit before: it may reject all of them.
func TestTracker_sendsFewRequestsAfterAHold(t *testing.T) {
	const (
		far     = 40 * time.Millisecond
		bounded = 5 // round trips of the first 100 responses
	)
	for name, tt := range map[string]struct {
		before int // requests that were accepted before
		most   int // requests in one round trip
	}{
		"known host": {200, 18},
		"new host":   {1, 18},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			d := driver{t, tr}
			for range tt.before {
				require.True(t, d.send("/", 200), name)
				time.Sleep(time.Millisecond)
			}
			d.send("/", 429, "Retry-After", "2")
			j := play(t, tr, func(time.Time) (int, http.Header) { return 200, nil }, 1000, 1000, far)
			require.Zero(t, j.failed, name)
			probe := slices.Min(j.arrivals)
			require.GreaterOrEqual(t, probe, 2*time.Second, name)
			trips := map[time.Duration]int{}
			for _, at := range j.arrivals {
				trips[(at-probe)/far]++
			}
			require.Equal(t, 1, trips[0], "%s: the probe", name)
			for i := range time.Duration(bounded) {
				require.LessOrEqual(t, trips[i+1], tt.most, "%s, round trip %d: %v", name, i+1, trips)
			}
			require.Less(t, j.elapsed, 4*time.Second, "%s: the bound is doubled then: %v", name, trips)
		})
	}
}
