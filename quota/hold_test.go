package quota

import (
	"testing"
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
