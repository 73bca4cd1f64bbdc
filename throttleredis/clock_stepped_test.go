package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A server's clock that is set forward, or a new server whose clock is ahead, restores at
// most one burst per key too early. After a step back of up to a window no units are
// restored until the clock has caught up; after a larger step, time continues from the
// stored reading. Waits are correct in both cases.
func TestTokenBucket_stepsOfTheServersClock(t *testing.T) {
	const window = 2 * time.Second
	for _, step := range []time.Duration{time.Second, window, window + time.Microsecond, time.Hour, 1000 * time.Hour} {
		s, clk := newTestStore(t), &manualClock{now: began}
		s.useLocalClock, s.Clock = true, clk
		l := s.TokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 20})
		takeAll := func() (n int) {
			for ; take(t, l, "").OK; n++ {
			}
			return n
		}
		require.Equal(t, 20, takeAll())
		clk.now = clk.now.Add(step)
		require.Equal(t, int(min(10*step.Seconds(), 20)), takeAll())
		clk.now = clk.now.Add(-step)
		require.Zero(t, takeAll())
		d := take(t, l, "")
		wait := time.Second / 10
		if step <= window {
			wait += step
		}
		require.Equal(t, wait, d.At.Add(d.Wait).Sub(clk.now), step)
		clk.now = d.At.Add(d.Wait)
		require.Equal(t, 1, takeAll())
	}
}
