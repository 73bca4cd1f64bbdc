package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a hold that the server did not state shows of the length of the next one: the time without
// requests that ended it, or all of it if that was much longer than the latest such time, because
// probes do not extend the ban then. A time in which no request was to be sent does not count.
func TestHold_remembersWhatEndedABan(t *testing.T) {
	begin := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		stated       bool
		before       time.Duration // lastGap
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
		h := hold{active: true, estimated: !tt.stated, lastSent: 7, since: begin, closedAt: begin.Add(tt.closed), until: begin.Add(tt.until), lastGap: tt.before}
		require.False(t, h.probeAccepted(7, begin), "%s: it was sent before the hold", name)
		require.True(t, h.probeAccepted(8, begin.Add(tt.sent)), name)
		require.Equal(t, tt.gap, h.lastGap, name)
		require.Equal(t, tt.lasting, h.lastTotal, name)
		require.False(t, h.probeAccepted(9, begin.Add(tt.sent)), "%s: it is over", name)
	}
}
