package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/internal/routes"
)

// ObserveLatency records that the server accepted req and took d, until now, to respond.
func (t *Tracker) ObserveLatency(req *http.Request, d time.Duration, now time.Time) {
	t.once.Do(t.init)
	t.latencies.Observe(routes.HashOfHost(t.seed, req), d, now)
}

// Latency returns the 10th percentile of the last ten latencies on the route of req: nine of
// ten responses take longer. It is zero if none was observed in the last minute.
func (t *Tracker) Latency(req *http.Request, now time.Time) time.Duration {
	t.once.Do(t.init)
	return t.latencies.Latency(routes.HashOfHost(t.seed, req), now)
}
