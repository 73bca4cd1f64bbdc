//go:build !race

package quota

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// The race detector makes sync.Pool drop objects at random, which allocates.

func TestTracker_noAllocs(t *testing.T) {
	var tr Tracker
	ctx := t.Context()
	req := request(t, "https://api.test/", "Authorization", "one")
	silent, stated := answer(200), answer(200, "X-RateLimit-Limit", "1000000", "X-RateLimit-Remaining", "999999", "X-RateLimit-Reset", "60")
	buf := make([]throttle.RemoteLimit, 0, 4)
	round := func(resp *http.Response) func() {
		return func() {
			m := tr.Demand(req)
			if m.Limiter == nil {
				tr.Feedback(req, m, resp, nil, time.Time{}, buf)
				return
			}
			d, _ := m.Limiter.Reserve(ctx, throttle.Claim{})
			m.Limiter.Report(ctx, throttle.Claim{}, d, tr.Feedback(req, m, resp, nil, time.Time{}, buf))
		}
	}
	for range 200 {
		round(silent)()
	}
	require.Zero(t, testing.AllocsPerRun(1000, round(silent)))
	for range sampleEvery + 1 {
		round(stated)() // until the headers of one are read
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, round(stated)), 1.0)
}

func TestSharing_hashesRoutesWithoutAllocs(t *testing.T) {
	_, q, _ := sharedQuota(t, .5)
	req := request(t, users)
	q.endpoint.route(req)
	require.Zero(t, testing.AllocsPerRun(1000, func() { q.endpoint.route(req) }))
}
