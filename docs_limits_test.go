package heed_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// The limits of docs/limits.md and of Example_github permit 5,000 requests in the first hour, and not twice as many.
func TestDocs_limitsOfGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: 50 * time.Millisecond} }}
		s.StartInMemory()
		defer s.Close()
		tr := &heed.Transport{Base: s.Transport(), Limiter: throttle.AllOf(
			throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerHour(5000)}),
			throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10}),
		)}
		c := heed.NewClient(tr)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var workers sync.WaitGroup
		for range 20 {
			workers.Go(func() {
				for {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
					if err != nil {
						return
					}
					resp, err := c.Do(req)
					if err != nil {
						return // the hour ends before the next unit is free
					}
					resp.Body.Close()
				}
			})
		}
		workers.Wait()
		require.Len(t, s.Requests(), 5000)
		tr.CloseIdleConnections()
	})
}
