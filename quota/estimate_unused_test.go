package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A bucket that other clients have used, and that is full again, resets before the next claim, each
// time. Probes would let one claim through per round trip for as long as nothing else is sent.
func TestEstimate_aFullBucketIsNotProbedEachTime(t *testing.T) {
	for name, tt := range map[string]struct {
		limit throttle.RemoteLimit
		asks  bool // after several such responses
	}{
		"full bucket":        {throttle.RemoteLimit{Limit: 200, Remaining: 199, ResetAfter: 5 * time.Millisecond}, false},
		"window":             {throttle.RemoteLimit{Limit: 200, Remaining: 199, ResetAfter: time.Second}, true},
		"used, about to end": {throttle.RemoteLimit{Limit: 200, Remaining: 150, ResetAfter: 5 * time.Millisecond}, true},
	} {
		x := estimate{limit: 200, remaining: 199}
		f := inFlight{}
		now := time.Unix(1e9, 0)
		for i := range uint64(4) {
			f.sent = i + 1
			x.update(tt.limit, i+1, now, &f)
			x.others.present = true
			now = now.Add(tt.limit.ResetAfter + 20*time.Millisecond)
			require.True(t, i > 1 || x.needsProbe(now, &f, pacing{}), name)
		}
		require.Equal(t, tt.asks, x.needsProbe(now, &f, pacing{}), name)
		used := tt.limit
		used.Remaining = 50
		x.update(used, 5, now, &f)
		x.others.present = true
		require.True(t, x.needsProbe(now.Add(2*time.Second), &f, pacing{}), name)
	}
}
