package heed

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestTransport_releasesTheClaimOfAnAbandonedBody checks that a body that is neither read
// nor closed releases its unit of a concurrency limit within abandonedAfter of the end of
// its context, and that it keeps the unit while the context lasts.
func TestTransport_releasesTheClaimOfAnAbandonedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3000
		limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: calls})
		inUse := func() (n int64) {
			d, err := limit.Reserve(t.Context(), throttle.Claim{DryRun: true, Cost: calls})
			require.NoError(t, err)
			return calls - d.Remaining
		}
		tr := &Transport{Base: smallBodies{}, Limiter: limit}
		ctx, cancel := context.WithCancel(t.Context())
		lasting, stop := context.WithCancel(t.Context())
		defer stop()
		var bodies []*http.Response
		for i := range calls {
			c := ctx
			if i%3 == 0 {
				c = lasting
			}
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(c))
			require.NoError(t, err)
			bodies = append(bodies, resp)
		}
		time.Sleep(10 * abandonedAfter)
		require.EqualValues(t, calls, inUse())
		cancel()
		time.Sleep(abandonedAfter)
		synctest.Wait()
		require.EqualValues(t, calls/3, inUse())
		for _, resp := range bodies {
			resp.Body.Close()
			resp.Body.Close()
		}
		require.Zero(t, inUse())
		time.Sleep(2 * abandonedAfter)
		tr.resolved.openBodies.mu.Lock()
		require.False(t, tr.resolved.openBodies.running, "nothing is left to look at")
		require.Nil(t, tr.resolved.openBodies.bodies)
		tr.resolved.openBodies.mu.Unlock()
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(lasting))
		require.NoError(t, err)
		stop()
		time.Sleep(abandonedAfter)
		synctest.Wait()
		require.Zero(t, inUse(), "the timer runs again")
		require.NoError(t, resp.Body.Close())
	})
}

// A watchedContext calls onErr in Err.
type watchedContext struct {
	context.Context
	onErr func()
}

func (c watchedContext) Err() error {
	c.onErr()
	return c.Context.Err()
}

// No lock is held while the Transport asks the context of a caller.
func TestTransport_looksAtContextsWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: smallBodies{}, Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var asked, locked atomic.Int64
		watched := watchedContext{ctx, func() {
			asked.Add(1)
			if !tr.resolved.openBodies.mu.TryLock() {
				locked.Add(1)
				return
			}
			tr.resolved.openBodies.mu.Unlock()
		}}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(watched))
		require.NoError(t, err)
		before := asked.Load()
		time.Sleep(3 * abandonedAfter)
		synctest.Wait()
		require.Greater(t, asked.Load(), before)
		require.Zero(t, locked.Load())
		require.NoError(t, resp.Body.Close())
	})
}
