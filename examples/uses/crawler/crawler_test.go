package crawler

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// TestScenario_noHostDelaysAnother checks that the crawl takes as long as that of the slowest
// host: 25 pages at one per second, after a maintenance of 20 seconds.
func TestScenario_noHostDelaysAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Scenario()
		r := s.Measure(t.Context(), s.Heed)
		require.Zero(t, r.Failed)
		require.InDelta(t, 45, r.Elapsed, 5)
	})
}

// TestCrawl_onePagePerSecond checks the limit of each host.
func TestCrawl_onePagePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seconds := make(map[string]map[int64]int) // requests by host and second
		s := Scenario()
		api := s.API
		s.API = func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
			respond := api(c)
			return func(req heedtest.Request) heedtest.Response {
				mu.Lock()
				if seconds[req.Host] == nil {
					seconds[req.Host] = make(map[int64]int)
				}
				seconds[req.Host][req.At.Unix()]++
				mu.Unlock()
				return respond(req)
			}
		}
		s.Measure(t.Context(), s.Heed)
		require.Len(t, seconds, 50)
		for host, counts := range seconds {
			for _, n := range counts {
				require.LessOrEqual(t, n, 2, host) // a request at the start and one at the end of a second
			}
		}
	})
}
