package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/internal/routes"
)

// ObserveLatency records that the server accepted req and took d, until now, to respond.
func (t *Tracker) ObserveLatency(req *http.Request, d time.Duration, now time.Time) {
	t.once.Do(t.init)
	t.latencies.Observe(routes.HostRouteOf(t.seed, req), d, now)
}

// ObserveExpired records that req, which had waited before it was sent, was ended by the deadline of its caller
// after d, at now, without a response: the server takes longer than d.
func (t *Tracker) ObserveExpired(req *http.Request, d, waited time.Duration, now time.Time) {
	t.once.Do(t.init)
	t.latencies.ObserveExpired(routes.HostRouteOf(t.seed, req), d, waited, now)
}

// Latency returns the time that the server takes to respond to requests of the route of req: typical is the
// lower quartile of the responses to the latest 24 requests, and high the longest time that one of these took,
// also without a response. If the route had no request in the last minute, they are those of its host. A zero is
// not known: there was no response, or no request.
func (t *Tracker) Latency(req *http.Request, now time.Time) (typical, high time.Duration) {
	t.once.Do(t.init)
	return t.latencies.Latency(routes.HostRouteOf(t.seed, req), now)
}
