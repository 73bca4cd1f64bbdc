package heed

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestTransport_anyNumberOfDemands counts the claims at the limits of Limits, of Limiter and of the units of Costs,
// together more than fit in the memory that is used again. Each gets one claim and one report for each call.
func TestTransport_anyNumberOfDemands(t *testing.T) {
	for _, limits := range []int{0, 1, 3, 4, 17} {
		for limiter := range 2 {
			for _, units := range []int{0, 1, 4, 20} {
				synctest.Test(t, func(t *testing.T) {
					costs, headers := map[string]int64{"free": 0}, []string{"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "900", "X-RateLimit-Reset", "60"}
					for i := range units {
						name := fmt.Sprint("unit", i)
						costs[name] = 1
						headers = append(headers, "X-RateLimit-Limit-"+name, "10", "X-RateLimit-Remaining-"+name, "9", "X-RateLimit-Reset-"+name, "60")
					}
					s := newScript(response{200, "", headers})
					all := make([]*recorder, limits+limiter)
					for i := range all {
						all[i] = new(recorder)
					}
					tr := &Transport{Base: s, Limits: func(_ *http.Request, tk *queue.Ticket) error {
						for _, l := range all[:limits] {
							tk.Add(throttle.Demand{Limiter: l})
						}
						return nil
					}}
					if limiter > 0 {
						tr.Limiter = all[limits]
					}
					for n := range 3 {
						resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Costs: costs})))
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
						for i, l := range all {
							require.Equal(t, [2]int{n + 1, n + 1}, [2]int{l.granted, l.observed}, "limit %d of %d, Limiter: %d, units: %d", i, limits, limiter, units)
						}
					}
				})
			}
		}
	}
}

// TestTransport_limitsMayAssignDemands checks that a slice which Limits assigns, and which all calls share, is not
// changed, although it has space for the demands that the Transport adds.
func TestTransport_limitsMayAssignDemands(t *testing.T) {
	own := &recorder{}
	shared := append(make([]throttle.Demand, 0, 8), throttle.Demand{Limiter: throttle.AllowAll}, throttle.Demand{Limiter: own, Cost: 2})
	before := slices.Clone(shared[:8])
	tr := &Transport{Base: newScript(200), Limiter: throttle.AllowAll, Limits: func(_ *http.Request, tk *queue.Ticket) error {
		tk.Demands = shared
		return nil
	}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				resp, err := get(t, tr)
				if assert.NoError(t, err) {
					resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, shared[:8])
	require.Equal(t, 160, own.granted)
}
