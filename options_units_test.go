package heed

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestTransport_ticketHoldsThreeDemands counts the demands of Limits, of Limiter and of the
// units of Costs. One demand of the ticket stays reserved for the requests that the server
// counts, whether it has stated a limit yet or not.
func TestTransport_ticketHoldsThreeDemands(t *testing.T) {
	for _, stated := range []bool{false, true} {
		for limits := range 4 {
			for limiter := range 2 {
				for units := range 5 {
					synctest.Test(t, func(t *testing.T) {
						headers := []string{"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "900", "X-RateLimit-Reset", "60"}
						if !stated {
							headers = nil
						}
						s := newScript(response{200, "", headers})
						tracker := new(quota.Tracker)
						_, err := get(t, &Transport{Base: s, Quota: tracker})
						require.NoError(t, err)
						tr := &Transport{Base: s, Quota: tracker, Limits: func(_ *http.Request, tk *queue.Ticket) error {
							for range limits {
								tk.Add(throttle.Demand{Limiter: throttle.AllowAll})
							}
							return nil
						}}
						if limiter > 0 {
							tr.Limiter = throttle.AllowAll
						}
						costs := map[string]int64{"free": 0}
						for i := range units {
							costs[fmt.Sprint("unit", i)] = 1
						}
						_, err = tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Costs: costs})))
						what := fmt.Sprintf("%d of Limits, %d of Limiter, %d units, stated: %v", limits, limiter, units, stated)
						switch {
						case limits+limiter > 3:
							require.ErrorIs(t, err, errTooManyDemands, what)
						case limits+limiter+units > 3:
							require.ErrorIs(t, err, errTooManyUnits, what)
						default:
							require.NoError(t, err, what)
						}
					})
				}
			}
		}
	}
}
