package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A settable clock is one that a time server may set.
type settable struct{ now time.Time }

func (c *settable) Now() time.Time                       { return c.now }
func (c *settable) After(time.Duration) <-chan time.Time { return nil }

// A clock that jumps ahead and is set back does not keep a hold of a second for as long as it has jumped.
func TestTracker_clockThatJumpsAhead(t *testing.T) {
	c := &settable{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tr := &Tracker{Clock: c}
	send := func(status int, header ...string) bool {
		req := request(t, users)
		m := tr.Demand(req)
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{Now: c.now})
		require.NoError(t, err)
		if d.OK {
			c.now = c.now.Add(10 * time.Millisecond)
			m.Limiter.Report(t.Context(), throttle.Claim{Now: c.now}, d, tr.Feedback(req, m, answer(status, header...), nil, c.now, nil))
		}
		return d.OK
	}
	stop := func() {
		n := 0
		for send(429, "Retry-After", "1") {
			n++
			require.Less(t, n, 100)
		}
	}
	for range 200 {
		require.True(t, send(200))
	}
	stop()
	c.now = c.now.Add(2*time.Second + time.Hour)
	require.True(t, send(200))
	c.now = c.now.Add(-time.Hour)
	stop()
	c.now = c.now.Add(10 * time.Second)
	require.True(t, send(200), "10 s after a Retry-After of 1 s")
}
