package quota_test

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttle"
)

// A readingClock is a Clock that reads the Tracker, as the code of a program may do. If the Tracker
// held a lock while it calls Now, Now would not return.
type readingClock struct {
	tracker *quota.Tracker
	reads   bool // set while Now calls the Tracker, which calls Now
	calls   int
}

func (c *readingClock) Now() time.Time {
	if !c.reads {
		c.reads = true
		c.tracker.Snapshot(0)
		c.reads = false
		c.calls++
	}
	return time.Unix(int64(c.calls), 0)
}

func (c *readingClock) After(time.Duration) <-chan time.Time { return nil }

// The Tracker calls the Clock without a lock held, whatever the program asks and the server states.
func TestTracker_callsTheClockWithoutALock(t *testing.T) {
	responses := []*http.Response{
		{StatusCode: 200}, {StatusCode: 429}, {StatusCode: 503}, nil,
		{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}},
		{StatusCode: 200, Header: http.Header{"Ratelimit": {`"default";r=40;t=30`}, "Ratelimit-Policy": {`"default";q=100;w=60`}}},
	}
	for name, exchange := range map[string]quota.Exchange{
		"alone": nil, "shared": &fleet.Exchange{Bus: &fleet.LocalBus{}, Secret: []byte("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			clk := &readingClock{}
			tr := &quota.Tracker{Clock: clk, Exchange: exchange}
			clk.tracker = tr
			defer tr.Close()
			events := &quota.Events{Hold: func(quota.HoldInfo) { tr.Snapshot(0) }}
			tr.Listen(events)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/items", nil)
			require.NoError(t, err)
			for range 20 {
				for _, resp := range responses {
					for _, d := range []throttle.Demand{tr.Demand(req), tr.DemandUnits(req, "tokens", 10)} {
						dec, err := d.Limiter.Reserve(t.Context(), throttle.Claim{Cost: d.Cost})
						require.NoError(t, err)
						f := tr.Feedback(req, d, resp, nil, time.Time{}, nil)
						f.Now = time.Time{}
						d.Limiter.Report(t.Context(), throttle.Claim{Cost: d.Cost}, dec, f)
					}
				}
			}
			tr.Forget(req)
			require.Positive(t, clk.calls)
			runtime.KeepAlive(events) // the Tracker refers to it weakly
		})
	}
}
