package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A decision on a claim with Waits describes the queue as any other does: its length, the
// number of units that may still wait, and the time in which a full queue is served.
func TestTickQueue_reportsItsQueueToCallersThatWait(t *testing.T) {
	clk := at(0)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: PerSecond(10), Queue: 5}), clk)
	for i, tt := range []struct {
		claim     Claim
		maxWait   time.Duration
		at        time.Duration
		ok        bool
		wait      time.Duration
		remaining int64
	}{
		{Claim{Cost: 2, Waits: true}, 0, 0, false, 200 * time.Millisecond, 5},
		{Claim{Cost: 2, Waits: true, Waited: 200 * time.Millisecond}, 0, 200 * time.Millisecond, true, 0, 5},
		{Claim{Cost: 3}, time.Second, 200 * time.Millisecond, true, 300 * time.Millisecond, 2},
		{Claim{Waits: true}, 0, 200 * time.Millisecond, false, 400 * time.Millisecond, 2},
		{Claim{Waits: true, Waited: 200 * time.Millisecond}, 0, 400 * time.Millisecond, false, 200 * time.Millisecond, 4},
	} {
		tt.claim.Now = time.Unix(0, int64(tt.at))
		d, err := ReserveAhead(t.Context(), q, tt.claim, tt.maxWait)
		require.NoError(t, err)
		require.Equal(t, tt.ok, d.OK, i)
		require.Equal(t, tt.wait, d.Wait, i)
		require.EqualValues(t, 5, d.Limit, i)
		require.Equal(t, tt.remaining, d.Remaining, i)
		require.Equal(t, 500*time.Millisecond, d.Per, i)
	}
}
